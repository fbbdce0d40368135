//! Errors of the device and the output directory.

use std::fs;

use insta::assert_snapshot;

use crate::support::run;

#[test]
fn an_unknown_device_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let ended = run(home.path(), &["devices", "--device", "99"]);
    assert_eq!(ended.code, 2);
    let error = ended.last();
    // The list depends on the machine.
    let (before, rest) = error.split_once("0 (").unwrap();
    let (_, after) = rest.rsplit_once(") (").unwrap();
    assert_snapshot!(format!("{before}0 (NAME) ({after}"), @"error: there is no device 99, wanted one of 0 (NAME) (--device N selects a device; `lapwing devices` lists them)");
}

#[test]
fn an_output_directory_that_cannot_be_written_is_named() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), "").unwrap();
    let train = ["train", "--steps", "1", "--out", "file/run"];
    let ended = run(home.path(), &train);
    assert_eq!(ended.code, 1);
    #[cfg(unix)]
    assert_snapshot!(ended.last(), @"error: cannot write file/run: Not a directory (os error 20); a part of its path is a file: choose another place with --out");
}

/// The variables hide all drivers of Vulkan and OpenGL on Linux.
#[cfg(target_os = "linux")]
#[test]
fn without_a_device_the_error_says_what_to_install() {
    use crate::support::{Ended, lapwing};

    let error = |arguments: &[&str]| {
        let home = tempfile::tempdir().unwrap();
        let mut command = lapwing(home.path(), arguments);
        command
            .env("VK_DRIVER_FILES", "/nowhere.json")
            .env("VK_ICD_FILENAMES", "/nowhere.json")
            .env("__EGL_VENDOR_LIBRARY_FILENAMES", "/nowhere.json");
        let ended = Ended::new(home.path(), command.output().unwrap());
        assert_eq!((ended.code, ended.out.as_str()), (1, ""));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        ended.err
    };
    let text = error(&["devices"]);
    assert_snapshot!(text, @"error: no GPU found: Vulkan did not start (Unable to find a Vulkan driver); install a Vulkan driver (on Debian or Ubuntu without a GPU: apt-get install mesa-vulkan-drivers libvulkan1), or, if one is installed, allow the process more memory (ulimit -v, the container's limit)");
    for arguments in [&["train"][..], &["eval"], &["play", "frozen-lake"]] {
        assert_eq!(error(arguments), text);
    }
}
