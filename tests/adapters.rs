//! The smoke test, and the kernels with every subgroup size that the device supports.

use std::path::Path;
use std::process::Command;

use lapwing_tensor::check::gpu;
use lapwing_tensor::{Caps, Gpu, GpuOptions, check::checks};
use lapwing_tests::smoke::{find, smoke};

fn named(names: [(&str, &str); 3]) -> Vec<Caps> {
    let one = |(backend, name): (&str, &str)| {
        let mut caps = gpu().caps().clone();
        (caps.backend, caps.name) = (backend.to_owned(), name.to_owned());
        caps
    };
    names.map(one).to_vec()
}

#[test]
fn an_adapter_is_meant_by_its_number_or_part_of_its_name() {
    let list = named([
        ("vulkan", "Example 9000"),
        ("vulkan", "llvmpipe"),
        ("dx12", "Example 9000"),
    ]);
    assert_eq!(find(&list, "2"), Ok(2));
    assert_eq!(find(&list, "LLVM"), Ok(1));
    assert_eq!(find(&list, "dx12 example"), Ok(2));
    let listed = "\n  0: vulkan Example 9000\n  1: vulkan llvmpipe\n  2: dx12 Example 9000";
    for (asked, text) in [
        ("3", "there is no device 3, only"),
        ("other", "no device is called \"other\", there are"),
        (
            "example",
            "several adapters are called \"example\"; give the number, of",
        ),
    ] {
        assert_eq!(find(&list, asked), Err(format!("{text}{listed}")));
    }
}

/// Every part of the smoke test that uses a wrong activation fails.
#[test]
fn the_smoke_test_finds_a_wrong_kernel() {
    let open = |options: GpuOptions| {
        let gpu = Gpu::open(options)?;
        gpu.miscompile("swiglu", "1.0 + exp(", "1.5 + exp(");
        Ok(gpu)
    };
    let mut told = Vec::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let all_right = smoke(&open, &fixtures, &mut |part| {
        told.push((part.name, part.result.clone()))
    });
    assert!(!all_right);
    let names: Vec<_> = told.iter().map(|(name, _)| *name).collect();
    let for_gpus = gpu().is_software().then_some("kernels for GPUs");
    let wanted: Vec<_> = ["kernels"].into_iter().chain(for_gpus).collect();
    assert_eq!(
        names,
        [&wanted[..], &["as WebGPU", "checkpoint", "default run"]].concat()
    );
    for (name, result) in told {
        let text = result.expect_err(name);
        let says = match name {
            "checkpoint" => "off by",
            "default run" => "step 1: a return of",
            _ => "swiglu ",
        };
        assert!(
            text.starts_with(says) || text.contains(says),
            "{name}: {text}"
        );
    }
}

/// lavapipe's subgroups are as wide as its vectors, which an environment variable sets. 8 is its own choice, with which all
/// other tests run. Subgroups of 4 are too narrow to exchange rows, so the threads use workgroup memory. Other devices have
/// one choice.
#[test]
fn kernels_are_right_with_wider_and_narrower_subgroups() {
    const WIDTH: &str = "LP_NATIVE_VECTOR_WIDTH";
    if std::env::var_os(WIDTH).is_some() {
        for check in checks() {
            check
                .run(&gpu())
                .unwrap_or_else(|wrong| panic!("{check:?}: {wrong}"));
        }
        let (least, most) = gpu().caps().subgroup;
        println!("subgroups of {least} to {most}");
    } else if gpu().caps().name.starts_with("llvmpipe") {
        for size in [4, 16] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "adapters::kernels_are_right_with_wider_and_narrower_subgroups",
                    "--nocapture",
                ])
                .env(WIDTH, (32 * size).to_string())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let wanted = [
                format!("subgroups of {size} to {size}"),
                "1 passed".to_owned(),
            ];
            let is_right = wanted.iter().all(|wanted| text.contains(wanted));
            assert!(output.status.success() && is_right, "{size}: {text}");
        }
    } else {
        println!("SKIPPED: the device has one width of subgroups");
    }
}
