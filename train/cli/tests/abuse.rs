//! What happens to runs that are treated badly: nothing is lost, and it is said what is wrong.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use insta::assert_snapshot;

use crate::program::{Said, lapwing, run, said};

const SMALL: [&str; 12] = [
    "--set",
    "train.groups=1",
    "--set",
    "train.group_size=4",
    "--set",
    "train.learn=2",
    "--set",
    "eval.episodes=4",
    "--set",
    "eval.every=2",
    "--set",
    "checkpoint.every=1",
];

/// A run of so many steps in `DIR/run`.
fn trained(home: &Path, steps: &str) {
    let begin = ["train", "--out", "run", "--steps", steps];
    let said = run(home, &[&begin[..], &SMALL].concat());
    assert_eq!(said.code, 0, "{}", said.err);
}

fn last_line(said: &Said) -> &str {
    said.err.lines().last().unwrap()
}

/// Names and contents of the files below a directory.
fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.display().to_string(), fs::read(&path).unwrap())),
        }
    }
    found.sort();
    found
}

#[test]
fn a_run_that_is_done_can_have_more_steps() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    trained(home, "3");
    let before = files(&home.join("run/adapter"));
    let again = run(home, &["train", "--resume", "run"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(again.out.contains("after training"), "{}", again.out);
    assert_eq!(files(&home.join("run/adapter")), before);
    let fewer = run(home, &["train", "--resume", "run", "--steps", "2"]);
    assert_eq!(fewer.code, 1);
    assert_snapshot!(last_line(&fewer), @"error: run/checkpoints/step-000003.safetensors: 3 steps are done, and train.steps is 2: give as many or more (--steps)");
    let more = run(home, &["train", "--resume", "run", "--steps", "5"]);
    assert_eq!(more.code, 0, "{}", more.err);
    assert!(more.err.contains("from step 3 on"), "{}", more.err);
    let config = fs::read_to_string(home.join("run/config.toml")).unwrap();
    assert!(config.contains("\nsteps = 5\n"), "{config}");
    // The last ones, and that of the best evaluation.
    let kept = files(&home.join("run/checkpoints"));
    let kept = kept
        .iter()
        .filter(|(name, _)| name.ends_with(".safetensors"))
        .count();
    assert!((2..=3).contains(&kept), "{kept}");
    let sessions = fs::read_to_string(home.join("run/sessions.jsonl")).unwrap();
    assert_eq!(sessions.lines().count(), 3, "{sessions}");
}

#[test]
fn a_checkpoint_of_another_run_is_refused_with_the_difference() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    trained(home, "1");
    let changed = run(
        home,
        &[
            "train",
            "--resume",
            "run",
            "--set",
            "train.lr=0.25",
            "--set",
            "game.options.size=5",
        ],
    );
    assert_eq!(changed.code, 1);
    assert_snapshot!(last_line(&changed), @"error: run/checkpoints/step-000001.safetensors: made with another config than the run has now: game.options.size was 4, is 5; train.lr was 0.0005, is 0.25; change that back, or start a new run from what was learned (--adapter, or --model if all weights were trained)");
    // What no result depends on may be changed.
    let on = |steps: &str| run(home, &["train", "--resume", "run", "--steps", steps]);
    let free = [
        "train",
        "--resume",
        "run",
        "--steps",
        "2",
        "--set",
        "checkpoint.keep=3",
    ];
    let free = run(home, &free);
    assert_eq!(free.code, 0, "{}", free.err);
    let whole = files(&home.join("run/adapter"));

    // One bit of the latest is another, and the one before takes its place: the step is made again.
    let latest = home.join("run/checkpoints/step-000002.safetensors");
    let sound = fs::read(&latest).unwrap();
    let mut damaged = sound.clone();
    damaged[sound.len() - 1000] ^= 1;
    fs::write(&latest, &damaged).unwrap();
    let fallen = on("2");
    assert_eq!(fallen.code, 0, "{}", fallen.err);
    assert_snapshot!(fallen.err.lines().find(|line| line.starts_with("left out")).unwrap(), @"left out: run/checkpoints/step-000002.safetensors: the checkpoint is damaged: its checksum is another");
    assert!(files(&home.join("run/adapter")) == whole && fs::read(&latest).unwrap() != damaged);

    // Where there is no other, it is said what is wrong.
    let sound = fs::read(&latest).unwrap();
    for (name, _) in files(&home.join("run/checkpoints")) {
        fs::remove_file(name).unwrap();
    }
    damaged = sound[..sound.len() / 2].to_vec();
    fs::write(&latest, &damaged).unwrap();
    let cut = on("3");
    assert_eq!(cut.code, 1);
    assert!(
        last_line(&cut).contains("the checkpoint is damaged"),
        "{}",
        cut.err
    );
    fs::write(&latest, &sound).unwrap();
    assert_eq!(on("3").code, 0);
}

#[test]
fn what_is_no_run_is_not_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let none = run(home, &["train", "--resume", "run"]);
    assert_eq!((none.code, none.out.as_str()), (1, ""));
    assert_snapshot!(none.err, @"error: run does not exist: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it");
    let both = run(home, &["train", "snake", "--resume", "run"]);
    assert_eq!(both.code, 2, "{}", both.err);
    assert!(both.err.contains("cannot be used with"), "{}", both.err);
    trained(home, "1");
    let metrics = home.join("run/metrics.jsonl");
    fs::write(&metrics, "").unwrap();
    let short = run(home, &["train", "--resume", "run", "--steps", "2"]);
    assert_eq!(short.code, 1);
    assert!(
        last_line(&short).contains("lines of it were removed since"),
        "{}",
        short.err
    );
}

/// Waits until the run has made so many steps.
#[cfg(unix)]
fn wait_for_steps(run: &Path, steps: usize) {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
        if text.matches("\"kind\":\"step\"").count() >= steps {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "no step");
        sleep(Duration::from_millis(5));
    }
}

/// Neither lost in silence nor written elsewhere; moved back, it goes on.
#[cfg(unix)]
#[test]
fn a_directory_that_is_moved_ends_the_run_with_a_word() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let begin = ["train", "--out", "run", "--steps", "100000"];
    let child = lapwing(home, &[&begin[..], &SMALL].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_steps(&home.join("run"), 3);
    fs::rename(home.join("run"), home.join("away")).unwrap();
    let ended = said(home, child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    assert!(
        last_line(&ended).starts_with("error: run was removed, moved or replaced"),
        "{}",
        ended.err
    );
    assert!(!home.join("run").exists());
    let steps = fs::read_to_string(home.join("away/metrics.jsonl")).unwrap();
    let more = steps.matches("\"kind\":\"step\"").count() + 2;
    let resumed = run(
        home,
        &["train", "--resume", "away", "--steps", &more.to_string()],
    );
    assert_eq!(resumed.code, 0, "{}", resumed.err);
}

/// A limit on the size of files stands in for a full disk, which takes root to make: writes fail, with another word.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_is_full_during_a_save_leaves_the_checkpoint_before() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    trained(home, "2");
    let before = files(&home.join("run/checkpoints"));
    // 700 KiB hold all that a run writes but its checkpoints. Their signal is held off as the program does it itself.
    let limited = format!(
        "trap '' XFSZ; ulimit -f 700; exec {} train --resume run --steps 4",
        env!("CARGO_BIN_EXE_lapwing")
    );
    let output = Command::new("bash")
        .args(["-c", &limited])
        .current_dir(home)
        .output();
    let full = said(home, output.unwrap());
    assert_eq!(full.code, 1, "{}", full.err);
    assert!(
        full.err.contains("what was saved last is kept"),
        "{}",
        full.err
    );
    assert!(last_line(&full).contains("File too large"), "{}", full.err);
    assert_eq!(files(&home.join("run/checkpoints")), before);
    // With room again it ends as it would have.
    let resumed = run(home, &["train", "--resume", "run", "--steps", "4"]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    fs::rename(home.join("run"), home.join("full")).unwrap();
    trained(home, "4");
    let adapter = |run: &str| fs::read(home.join(run).join("adapter/adapter_model.safetensors"));
    assert!(adapter("full").unwrap() == adapter("run").unwrap());
}

/// What lapwing did not make, it does not replace.
#[test]
fn a_checkpoint_that_is_there_is_not_pretrained_over() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let model = home.join("model");
    fs::create_dir(&model).unwrap();
    fs::write(model.join("config.json"), "precious").unwrap();
    let before = files(home);
    let refused = run(home, &["pretrain", "--out", "model", "--steps", "1"]);
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    assert_snapshot!(last_line(&refused), @"error: model exists and is not empty: choose another directory with --out, or remove it");
    assert_eq!(files(home), before);
}

/// Runs that begin at the same moment have a directory each, and all of them what they should have.
#[test]
fn runs_that_begin_at_once_have_a_directory_each() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let begin = [&["train", "--steps", "1"], &SMALL[..]].concat();
    let one = || {
        let mut command = lapwing(home, &begin);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| one()).collect();
    for child in children {
        let ended = said(home, child.wait_with_output().unwrap());
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
    for name in [
        "frozen-lake-1",
        "frozen-lake-1-2",
        "frozen-lake-1-3",
        "frozen-lake-1-4",
    ] {
        let run = home.join("runs").join(name);
        for file in [
            "config.toml",
            "metrics.jsonl",
            "adapter/adapter_model.safetensors",
        ] {
            assert!(
                run.join(file).metadata().unwrap().len() > 0,
                "{name}/{file}"
            );
        }
    }
}
