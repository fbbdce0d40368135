//! Errors of the device and the output directory.

use std::fs;

use insta::assert_snapshot;

use crate::support::run;

#[test]
fn an_unknown_device_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let ended = run(home.path(), "devices --device 99");
    assert_eq!(ended.code, 2);
    let error = ended.last();
    // The list depends on the machine.
    let (before, rest) = error.split_once("0 (").unwrap();
    let (_, after) = rest.rsplit_once(");").unwrap();
    assert_snapshot!(format!("{before}0 (NAME);{after}"), @r#"error: no device is called "99"; devices: 0 (NAME); `lapwing devices` lists them"#);
}

#[test]
fn an_output_directory_that_cannot_be_written_is_named() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), "").unwrap();
    let ended = run(home.path(), "train --steps 1 --out file/run");
    assert_eq!(ended.code, 2);
    #[cfg(unix)]
    assert_snapshot!(ended.last(), @"error: file/run cannot be made: a part of its path is a file: choose another place with --out");
}

#[test]
fn the_error_of_the_command_line_escapes_control_characters() {
    let home = tempfile::tempdir().unwrap();
    let ended = run(home.path(), "train '--x\u{1b}[2J\nerror: none'");
    assert_eq!(ended.code, 2);
    assert_snapshot!(ended.err, @r"
    error: unexpected argument '--x\u{1b}[2J\nerror: none' found

    Usage: lapwing train [OPTIONS] [PRESET|FILE.toml|RUN]

    For more information, try '--help'.
    ");
}

/// Without the check, Mesa and LLVM crash at 300 to 900 MiB.
#[cfg(target_os = "linux")]
#[test]
fn a_low_limit_of_the_address_space_is_named() {
    let home = tempfile::tempdir().unwrap();
    for command in ["devices", "generate --prompt go", "train --steps 1"] {
        let script = format!(
            "ulimit -v 716800; exec {} {command}",
            env!("CARGO_BIN_EXE_lapwing")
        );
        let ended = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(home.path())
            .output();
        let ended = ended.unwrap();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let error = String::from_utf8(ended.stderr).unwrap();
        let (before, after) = error.split_once(" MiB of address space").unwrap();
        assert!(
            before.starts_with("error: a GPU driver may not start here: it needs up to "),
            "{error}"
        );
        assert_eq!(
            after,
            ", and the limit is 700 MiB; raise it with `ulimit -v`\n"
        );
    }
}

/// The variables hide all drivers of Vulkan and OpenGL on Linux.
#[cfg(target_os = "linux")]
#[test]
fn without_a_device_the_error_says_what_to_install() {
    use crate::support::{Ended, lapwing};

    let error = |line: &str| {
        let home = tempfile::tempdir().unwrap();
        let mut command = lapwing(home.path(), line);
        command
            .env("VK_DRIVER_FILES", "/nowhere.json")
            .env("VK_ICD_FILENAMES", "/nowhere.json")
            .env("__EGL_VENDOR_LIBRARY_FILENAMES", "/nowhere.json");
        let ended = Ended::new(home.path(), command.output().unwrap());
        assert_eq!((ended.code, ended.out.as_str()), (1, ""));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        ended.err
    };
    let text = error("devices");
    assert_snapshot!(text, @"error: no GPU found: Vulkan did not start (Unable to find a Vulkan driver); install a Vulkan driver (on Debian or Ubuntu without a GPU: apt-get install mesa-vulkan-drivers libvulkan1), or, if one is installed, allow the process more memory (ulimit -v, the container's limit)");
    for line in ["train", "eval", "play frozen-lake"] {
        assert_eq!(error(line), text);
    }
}
