//! Tests lapwing on a device and prints a report to paste. `./check --device NAME` runs this.
//!
//! cargo run -p lapwing-tests --example smoke -- [NAME or number]

use std::path::Path;
use std::process::{Command, ExitCode};

use lapwing_tensor::{Gpu, GpuOptions};
use lapwing_tests::smoke::{describe, find, smoke};

fn main() -> ExitCode {
    let list = Gpu::list();
    let index = match std::env::args().nth(1) {
        Some(asked) => find(&list, &asked),
        None => Gpu::choice(list.iter()).ok_or(Gpu::none_found().to_string()),
    };
    let index = match index {
        Ok(index) => index,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    println!(
        "lapwing    {}{}, {} {}, {}",
        env!("CARGO_PKG_VERSION"),
        commit(&root).map_or(String::new(), |commit| format!(" ({commit})")),
        std::env::consts::OS,
        std::env::consts::ARCH,
        jiff::Zoned::now().date()
    );
    print!("{}", describe(&list[index]));
    let open = |options| {
        Gpu::open(GpuOptions {
            device: Some(index),
            ..options
        })
    };
    let all_right = smoke(&open, &root.join("fixtures"), &mut |part| {
        println!("{part}")
    });
    println!(
        "result     lapwing is {} on this device",
        if all_right { "right" } else { "WRONG" }
    );
    match all_right {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Returns the current commit, if git reports it.
fn commit(root: &Path) -> Option<String> {
    let said = Command::new("git")
        .args(["describe", "--always", "--dirty"])
        .current_dir(root)
        .output()
        .ok()?;
    let text = String::from_utf8(said.stdout).ok()?.trim().to_owned();
    (said.status.success() && !text.is_empty()).then_some(text)
}
