//! Drivers that are known to be bad, or not to be what one hopes for. Short, and each with where it was reported: what a
//! driver does here is measured, not looked up.

use lapwing_tensor::Caps;
use serde_json::{Value, json};

use super::Seen;

/// What is known of some adapters.
struct Known {
    /// vulkan, metal, dx12 or gl; any if empty.
    backend: &'static str,
    /// Part of the adapter's name, in lower case; any if empty.
    name: &'static str,
    /// Part of the driver's name or version, in lower case; any if empty.
    driver: &'static str,
    /// What was seen.
    what: &'static str,
    cure: &'static str,
    source: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        backend: "metal",
        name: "intel",
        driver: "",
        what: "the Metal compiler fails with internal errors on some kernels on Macs with an Intel GPU",
        cure: "update macOS; if a kernel below fails, use another machine",
        source: "gfx-rs, issue 5827 of its GPU library",
    },
    Known {
        backend: "metal",
        name: "amd",
        driver: "",
        what: "Metal was seen to compile barriers wrongly with some uses of shared memory, which lapwing's kernels avoid",
        cure: "nothing, as long as the kernels below are right",
        source: "gfx-rs, issue 4500 of its GPU library",
    },
    Known {
        backend: "vulkan",
        name: "swiftshader",
        driver: "",
        what: "SwiftShader computes right, but about seven times slower than Mesa's lavapipe",
        cure: "install mesa-vulkan-drivers, and choose llvmpipe",
        source: "measured with lapwing: 1.2 s a training step against 0.18 s",
    },
    Known {
        backend: "vulkan",
        name: "llvmpipe",
        driver: "mesa 25.0",
        what: "this lavapipe takes half a minute to compile the kernels when they are new to it",
        cure: "nothing: the next time it has them in its cache (~/.cache/mesa_shader_cache)",
        source: "measured with lapwing: 34.6 s for the first update with Mesa 25.0.7, 5.6 s with 22.3.6",
    },
    Known {
        backend: "dx12",
        name: "",
        driver: "vkd3d",
        what: "Direct3D 12 on top of Vulkan (vkd3d, Wine) gave numbers that are not numbers in an old version",
        cure: "if a kernel below fails, update Wine, or choose the same adapter under Vulkan",
        source: "seen with lapwing under Wine 8.0; under Wine 10.0 all is right",
    },
    Known {
        backend: "gl",
        name: "",
        driver: "",
        what: "OpenGL was all that was found; kernels do without subgroups there",
        cure: "install a Vulkan driver: the vendor's, or mesa-vulkan-drivers",
        source: "right with lapwing on Mesa 22.3.6's llvmpipe, tried on nothing else",
    },
    Known {
        backend: "dx12",
        name: "microsoft basic render driver",
        driver: "",
        what: "this is Windows' own software renderer, and lapwing was never run on it",
        cure: "install the driver of the GPU's maker",
        source: "no report",
    },
];

impl Known {
    fn is(&self, caps: &Caps) -> bool {
        let has = |text: &str, part: &str| text.to_lowercase().contains(part);
        has(&caps.backend, self.backend)
            && has(&caps.name, self.name)
            && has(&caps.driver, self.driver)
    }
}

/// Whether something is known of it.
pub(super) fn look(caps: &Caps) -> Seen {
    match KNOWN.iter().find(|known| known.is(caps)) {
        None => {
            let text = format!("{}: nothing bad is known of it", caps.driver);
            Seen::Good(text, Value::Null)
        }
        Some(known) => Seen::Warning(
            format!("{}: {} ({})", caps.driver, known.what, known.source),
            known.cure.to_owned(),
            json!({ "source": known.source }),
        ),
    }
}

#[cfg(test)]
mod tests {
    use lapwing_tensor::check::gpu;

    use super::*;

    #[test]
    fn each_entry_is_met_and_reads_as_it_is_compared() {
        for known in KNOWN {
            for text in [known.backend, known.name, known.driver] {
                assert_eq!(text, text.to_lowercase());
            }
            let mut caps = gpu().caps().clone();
            caps.backend = known.backend.to_owned();
            caps.name = format!("An {} of these", known.name.to_uppercase());
            caps.driver = format!("{} 1.2", known.driver.to_uppercase());
            let Seen::Warning(text, cure, _) = look(&caps) else {
                panic!("{} is not met", known.what);
            };
            assert!(text.contains(known.what) && cure == known.cure, "{text}");
        }
    }

    #[test]
    fn of_most_nothing_is_known() {
        let mut caps = gpu().caps().clone();
        caps.backend = "vulkan".to_owned();
        caps.name = "Example 9000".to_owned();
        caps.driver = "example 1.2".to_owned();
        let Seen::Good(text, _) = look(&caps) else {
            panic!("something is known of the example")
        };
        assert_eq!(text, "example 1.2: nothing bad is known of it");
    }
}
