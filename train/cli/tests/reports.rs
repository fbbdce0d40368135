//! Reports, exports and the live view of a run.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use insta::assert_snapshot;

use crate::support::{Ended, SMALL, lapwing, run};

#[test]
fn a_run_is_watched_reported_and_exported() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let mut training = lapwing(home, &format!("train --steps 2 --out a {SMALL}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !home.join("a/config.toml").exists() {
        assert!(training.try_wait().unwrap().is_none(), "it ended at once");
        std::thread::sleep(Duration::from_millis(50));
    }
    // While the run is in progress. It is the only one in the directory.
    let watched = run(home, "watch .");
    assert!(training.wait().unwrap().success());
    assert_eq!(
        (watched.code, watched.err.as_str()),
        (0, "note: follows ./a\n")
    );
    for line in [
        "step 0/2  evaluation on 5 episodes: success",
        "step 1/2  return",
        "step 2/2  evaluation on 5 episodes: success",
    ] {
        assert_eq!(watched.out.matches(line).count(), 1, "{}", watched.out);
    }
    assert!(
        watched.out.ends_with("\ndone: 2 steps\n"),
        "{}",
        watched.out
    );
    let picture = run(home, "watch a --once");
    assert_eq!((picture.code, picture.err.as_str()), (0, ""));
    for line in [
        "a: frozen-lake, seed 1\ndone: 2 steps\nstep 2/2 [#",
        "\nbest possible",
    ] {
        assert!(picture.out.contains(line), "{}", picture.out);
    }
    assert!(!picture.out.contains('\x1b'), "{}", picture.out);
    // The last run that was started.
    let last = run(home, "watch . --once");
    assert_eq!(last.err, "note: follows ./a\n");
    assert_eq!(last.out.lines().nth(1), Some("done: 2 steps"));

    let told = |ended: Ended| {
        assert_eq!((ended.code, ended.err.as_str()), (0, ""));
        ended.out
    };
    assert_snapshot!(told(run(home, "report .")), @"The report is in ./report.html");
    assert_snapshot!(told(run(home, "report a")), @"The report is in a/report.html");
    let page = fs::read_to_string(home.join("a/report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("lapwing-base-2"));
    assert_snapshot!(told(run(home, "report a a")), @"The report is in lapwing-report.html");
    fs::write(home.join("lapwing-report.html"), "precious").unwrap();
    let refused = run(home, "report a a");
    assert_eq!(refused.code, 2);
    assert_snapshot!(refused.err, @"error: lapwing-report.html exists, and lapwing did not make it: choose another place with --out");
    assert_snapshot!(told(run(home, "report a a --out new/b.html")), @"The report is in new/b.html");

    assert_snapshot!(told(run(home, "export a --format csv")), @"
    a/csv/steps.csv
    a/csv/evaluations.csv
    ");
    let steps = fs::read_to_string(home.join("a/csv/steps.csv")).unwrap();
    assert_eq!(steps.lines().count(), 3, "{steps}");
    let out = told(run(home, "export a --format tensorboard --out events"));
    let file = fs::read(home.join(out.trim_end())).unwrap();
    assert!(out.starts_with("events/events.out.tfevents."), "{out}");
    let tag = b"eval/success_rate";
    assert!(file.windows(tag.len()).any(|part| part == tag));
}

#[test]
fn damaged_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    fs::create_dir(home.join("a")).unwrap();
    fs::write(home.join("a/config.toml"), "").unwrap();
    let ended = run(home, "watch a --once");
    assert!(
        ended.out.contains("not running; no records yet"),
        "{}",
        ended.out
    );
    fs::write(home.join("a/metrics.jsonl"), "odd\n").unwrap();
    let ended = run(home, "watch a --once");
    assert_eq!(ended.code, 2);
    assert_snapshot!(ended.err, @"error: a/metrics.jsonl: cannot be read: line 1: expected value at line 1 column 1");
    // The report is written without the line, and names it.
    let ended = run(home, "report a");
    assert_eq!(
        (ended.code, &*ended.out),
        (1, "The report is in a/report.html\n")
    );
    assert_snapshot!(ended.err);
    let page = fs::read_to_string(home.join("a/report.html")).unwrap();
    assert!(page.contains("A line of metrics.jsonl could not be read and is left out."));
    fs::remove_file(home.join("a/metrics.jsonl")).unwrap();
    let ended = run(home, "report a");
    assert!(
        ended.err.contains("metrics.jsonl is missing"),
        "{}",
        ended.err
    );
    assert_eq!(ended.code, 1);
    fs::write(home.join("a/config.toml"), "trian.steps = 1").unwrap();
    let ended = run(home, "report a");
    assert!(
        ended.code != 0 && ended.err.contains("unknown key"),
        "{}",
        ended.err
    );
}
