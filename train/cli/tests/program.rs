//! Runs the program.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program with these arguments, in this directory; nothing of the caller's surroundings changes what it says.
pub fn lapwing(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lapwing"));
    command
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null());
    for variable in ["LAPWING_ADAPTER_INDEX", "COLUMNS", "RUST_BACKTRACE"] {
        command.env_remove(variable);
    }
    // What people scored is kept with the test's own files.
    for variable in ["HOME", "XDG_DATA_HOME", "APPDATA"] {
        command.env(variable, directory);
    }
    // No test asks the real hub for anything.
    for variable in ["HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT"] {
        command.env_remove(variable);
    }
    command.env("HF_HUB_OFFLINE", "1");
    command
}

/// How it ended, and what it said on standard output and standard error.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs it to its end, with the directory's path left out of what it says.
pub fn run(directory: &Path, arguments: &[&str]) -> Said {
    said(directory, lapwing(directory, arguments).output().unwrap())
}

pub fn said(directory: &Path, output: Output) -> Said {
    let text = |bytes| {
        String::from_utf8(bytes)
            .unwrap()
            .replace(directory.to_str().unwrap(), "DIR")
    };
    Said {
        code: output.status.code().expect("not killed"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}
