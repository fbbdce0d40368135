//! `--help` of every command, reviewed as snapshots.

use insta::assert_snapshot;

use crate::program::run;

#[test]
fn help_reads_so() {
    let directory = tempfile::tempdir().unwrap();
    for command in [
        "",
        "train",
        "sweep",
        "eval",
        "play",
        "score",
        "generate",
        "serve",
        "merge",
        "pretrain",
        "config",
        "doctor",
        "report",
        "watch",
        "export",
        "games",
        "adapters",
        "completions",
        "man",
    ] {
        let arguments: Vec<&str> = [command, "--help"]
            .into_iter()
            .filter(|a| !a.is_empty())
            .collect();
        let said = run(directory.path(), &arguments);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{command}");
        let name = if command.is_empty() {
            "lapwing"
        } else {
            command
        };
        // A build on Windows names the program with its ending.
        assert_snapshot!(name, said.out.replace("lapwing.exe", "lapwing"));
    }
}
