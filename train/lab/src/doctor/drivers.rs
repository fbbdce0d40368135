//! Known driver problems, each with its source. The list is short: the other checks measure what a driver does.

use lapwing_tensor::Caps;
use serde_json::{Value, json};

use super::{Finding, FindingStatus};

/// A known problem of some devices. The strings are in lower case; an empty one matches any device.
struct DriverProblem {
    /// The backend: vulkan, metal, dx12 or gl.
    backend: &'static str,
    /// Part of the device's name.
    name: &'static str,
    /// Part of the driver's name or version.
    driver: &'static str,
    text: &'static str,
    fix: &'static str,
    source: &'static str,
}

const PROBLEMS: &[DriverProblem] = &[
    DriverProblem {
        backend: "metal",
        name: "intel",
        driver: "",
        text: "the Metal compiler fails with internal errors on some kernels on Macs with an Intel GPU",
        fix: "update macOS; if the check of kernels fails, use another machine",
        source: "gfx-rs, issue 5827 of its GPU library",
    },
    DriverProblem {
        backend: "metal",
        name: "amd",
        driver: "",
        text: "Metal compiles barriers wrongly with some uses of shared memory, which lapwing's kernels avoid",
        fix: "nothing, if the check of kernels passes",
        source: "gfx-rs, issue 4500 of its GPU library",
    },
    DriverProblem {
        backend: "vulkan",
        name: "swiftshader",
        driver: "",
        text: "SwiftShader computes correctly, but about seven times slower than Mesa's lavapipe",
        fix: "install mesa-vulkan-drivers, and choose llvmpipe",
        source: "measured with lapwing: 1.2 s for a training step, 0.18 s with lavapipe",
    },
    DriverProblem {
        backend: "vulkan",
        name: "llvmpipe",
        driver: "mesa 25.0",
        text: "this version of lavapipe takes half a minute to compile the kernels for the first time",
        fix: "nothing: later starts use its cache (~/.cache/mesa_shader_cache)",
        source: "measured with lapwing: 34.6 s for the first update with Mesa 25.0.7, 5.6 s with 22.3.6",
    },
    DriverProblem {
        backend: "dx12",
        name: "",
        driver: "vkd3d",
        text: "an old version of Direct3D 12 on Vulkan (vkd3d, Wine) computed NaN",
        fix: "if the check of kernels fails, update Wine, or choose the same device under Vulkan",
        source: "measured with lapwing: wrong with Wine 8.0, correct with Wine 10.0",
    },
    DriverProblem {
        backend: "gl",
        name: "",
        driver: "",
        text: "only OpenGL was found, where kernels cannot use subgroups",
        fix: "install a Vulkan driver: the vendor's, or mesa-vulkan-drivers",
        source: "correct with lapwing on Mesa 22.3.6's llvmpipe; no other driver was tested",
    },
    DriverProblem {
        backend: "dx12",
        name: "microsoft basic render driver",
        driver: "",
        text: "this is Windows' own software renderer, on which lapwing was never run",
        fix: "install the driver of the GPU's vendor",
        source: "no report",
    },
];

pub(super) fn look_up(caps: &Caps) -> Finding {
    let has = |text: &str, part: &str| text.to_lowercase().contains(part);
    let known = PROBLEMS.iter().find(|problem| {
        has(&caps.backend, problem.backend)
            && has(&caps.name, problem.name)
            && has(&caps.driver, problem.driver)
    });
    let driver = &caps.driver;
    match known {
        None => {
            let text = format!("{driver}: no known problems");
            Finding::good(text, Value::Null)
        }
        Some(problem) => {
            let text = format!("{driver}: {} ({})", problem.text, problem.source);
            let figures = json!({ "source": problem.source });
            Finding::good(text, figures).or(false, FindingStatus::Warning, Some(problem.fix))
        }
    }
}

#[cfg(test)]
mod tests {
    use lapwing_tensor::{Gpu, GpuOptions};

    use super::*;

    fn caps() -> Caps {
        let gpu = Gpu::open(GpuOptions::default()).unwrap();
        gpu.caps().clone()
    }

    #[test]
    fn each_problem_matches_and_is_in_lower_case() {
        for problem in PROBLEMS {
            for text in [problem.backend, problem.name, problem.driver] {
                assert_eq!(text, text.to_lowercase());
            }
            let mut caps = caps();
            caps.backend = problem.backend.to_owned();
            caps.name = format!("An {} of these", problem.name.to_uppercase());
            caps.driver = format!("{} 1.2", problem.driver.to_uppercase());
            let finding = look_up(&caps);
            assert_eq!(finding.outcome, FindingStatus::Warning);
            assert!(finding.text.contains(problem.text), "{}", finding.text);
            assert_eq!(finding.fix, Some(problem.fix));
        }
    }

    #[test]
    fn most_drivers_have_no_known_problems() {
        let mut caps = caps();
        caps.backend = "vulkan".to_owned();
        caps.name = "Example 9000".to_owned();
        caps.driver = "example 1.2".to_owned();
        let finding = look_up(&caps);
        assert_eq!(finding.outcome, FindingStatus::Good);
        assert_eq!(finding.text, "example 1.2: no known problems");
    }
}
