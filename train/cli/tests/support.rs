//! Runs the program.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Returns the program with the arguments of this line, in this directory, without the caller's environment. The
/// line is split as a shell would.
pub fn lapwing(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lapwing"));
    command
        .args(shlex::split(line).expect("closed quotes"))
        .current_dir(directory)
        .stdin(Stdio::null());
    for variable in [
        "LAPWING_DEVICE",
        "LAPWING_ADAPTER_INDEX",
        "LAPWING_API_KEY",
        "COLUMNS",
        "RUST_BACKTRACE",
        "OPENAI_API_KEY",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_TOKEN",
        "HF_ENDPOINT",
        "SLURM_ARRAY_TASK_ID",
    ] {
        command.env_remove(variable);
    }
    command.env("HF_HUB_OFFLINE", "1");
    command.env("XDG_DATA_HOME", directory.join(".data"));
    command
}

/// The exit status and the output of a program.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// Replaces the directory's path in the output by `DIR`.
    pub fn new(directory: &Path, output: Output) -> Ended {
        let text = |bytes| {
            String::from_utf8(bytes)
                .unwrap()
                .replace(directory.to_str().unwrap(), "DIR")
        };
        Ended {
            code: output.status.code().expect("not killed"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// The last line on standard error.
    pub fn last(&self) -> &str {
        self.err.lines().last().unwrap_or_default()
    }
}

/// Runs the program to its end.
pub fn run(directory: &Path, line: &str) -> Ended {
    Ended::new(directory, lapwing(directory, line).output().unwrap())
}

/// Runs the program, which must succeed.
pub fn succeeds(directory: &Path, line: &str) -> Ended {
    let ended = run(directory, line);
    assert_eq!(ended.code, 0, "{line}: {}", ended.err);
    ended
}

/// Runs the program, which must succeed, and parses its output.
pub fn json(directory: &Path, line: &str) -> Value {
    serde_json::from_str(&succeeds(directory, line).out).unwrap()
}

/// Runs the program, which must fail, and returns its last line.
pub fn fails(directory: &Path, line: &str) -> String {
    let ended = run(directory, line);
    assert_ne!(ended.code, 0, "{line}: {}", ended.out);
    ended.last().to_owned()
}

/// Runs the program with this standard input.
pub fn with_input(directory: &Path, line: &str, input: &str) -> Ended {
    let mut command = lapwing(directory, line);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    Ended::new(directory, child.wait_with_output().unwrap())
}

/// Parses a file of JSON lines.
pub fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// Returns the names and contents of all files below a directory.
pub fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false if path.is_file() => {
                found.push((path.display().to_string(), fs::read(&path).unwrap()));
            }
            false => (),
        }
    }
    found.sort();
    found
}

/// Settings of a small run.
pub const SMALL: &str =
    "--set train.groups=1 --set train.group_size=4 --set train.learn=2 --set eval.episodes=5";

/// Returns the path of a checkpoint among the fixtures.
pub fn golden(name: &str) -> String {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden");
    fixtures.join(name).to_str().unwrap().to_owned()
}

/// Copies the files of a directory.
pub fn copy(from: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}
