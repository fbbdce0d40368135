//! Damaged, moved and concurrent runs: nothing is lost, and errors name the cause.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use insta::assert_snapshot;

use crate::support::{Ended, SMALL, fails, files, lapwing, run, succeeds};

const OFTEN: &str = "--set eval.every=2 --set checkpoint.every=1";

/// Trains a run in `DIR/run`.
fn trained(home: &Path, steps: &str) {
    let line = format!("train --out run --steps {steps} {SMALL} {OFTEN}");
    succeeds(home, &line);
}

#[test]
fn a_finished_run_can_be_extended() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    trained(home, "3");
    let before = files(&home.join("run/adapter"));
    let again = run(home, "train --resume run");
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(again.out.contains("after training"), "{}", again.out);
    let note = "note: there is nothing to do: run has its 3 steps; --steps N trains on\n";
    assert!(
        again.err.contains(note) && !again.err.contains("episodes, training"),
        "{}",
        again.err
    );
    assert_eq!(files(&home.join("run/adapter")), before);
    let fewer = run(home, "train --resume run --steps 2");
    assert_eq!(fewer.code, 2);
    assert_snapshot!(fewer.last(), @"error: run: the run is at step 3: wanted --steps 3 or more, found 2");
    let more = run(home, "train --resume run --steps 5");
    assert_eq!(more.code, 0, "{}", more.err);
    assert!(more.err.contains("from step 3 on"), "{}", more.err);
    let config = fs::read_to_string(home.join("run/config.toml")).unwrap();
    assert!(config.contains("\nsteps = 5\n"), "{config}");
    // The last two, and that of the best evaluation.
    let kept = files(&home.join("run/checkpoints"));
    let is_full = |(name, _): &&(String, Vec<u8>)| name.ends_with(".safetensors");
    let kept = kept.iter().filter(is_full).count();
    assert!((2..=3).contains(&kept), "{kept}");
    let sessions = fs::read_to_string(home.join("run/sessions.jsonl")).unwrap();
    assert_eq!(sessions.lines().count(), 3, "{sessions}");
}

#[test]
fn a_checkpoint_of_another_run_is_refused_with_the_difference() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    trained(home, "1");
    let line = "train --resume run --set train.lr=0.25 --set game.options.size=5";
    let changed = run(home, line);
    assert_eq!(changed.code, 2);
    assert_snapshot!(changed.last(), @"error: run/checkpoints/step-000001.safetensors: made with another config than the run has now: game.options.size was 4, is 5; train.lr was 0.003, is 0.25; change that back, or start a new run from the trained weights (--adapter, --model if all weights were trained, or value.network for dqn and pqn)");
    // A key without influence on results may be changed.
    let on = |steps: &str| run(home, &format!("train --resume run --steps {steps}"));
    let free = run(home, "train --resume run --steps 2 --set checkpoint.keep=3");
    assert_eq!(free.code, 0, "{}", free.err);
    let whole = files(&home.join("run/adapter"));

    // If the latest checkpoint is damaged, the one before is used.
    let latest = home.join("run/checkpoints/step-000002.safetensors");
    let sound = fs::read(&latest).unwrap();
    let mut damaged = sound.clone();
    damaged[sound.len() - 1000] ^= 1;
    fs::write(&latest, &damaged).unwrap();
    let fallen = on("2");
    assert_eq!(fallen.code, 0, "{}", fallen.err);
    assert_snapshot!(fallen.err.lines().find(|line| line.contains("skipped")).unwrap(), @"note: skipped a checkpoint: run/checkpoints/step-000002.safetensors: the checkpoint is damaged: its checksum is another");
    assert!(files(&home.join("run/adapter")) == whole && fs::read(&latest).unwrap() != damaged);

    // Without another one, the damage is an error.
    let sound = fs::read(&latest).unwrap();
    for (name, _) in files(&home.join("run/checkpoints")) {
        fs::remove_file(name).unwrap();
    }
    damaged = sound[..sound.len() / 2].to_vec();
    fs::write(&latest, &damaged).unwrap();
    let cut = on("3");
    assert_eq!(cut.code, 2);
    assert!(
        cut.last().contains("the checkpoint is damaged"),
        "{}",
        cut.err
    );
    fs::write(&latest, &sound).unwrap();
    assert_eq!(on("3").code, 0);
}

#[test]
fn missing_metrics_are_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    trained(home, "1");
    let metrics = home.join("run/metrics.jsonl");
    fs::write(&metrics, "").unwrap();
    let error = fails(home, "train --resume run --steps 2");
    assert!(error.contains("lines of it were removed since"), "{error}");
    fs::remove_file(&metrics).unwrap();
    let error = fails(home, "train --resume run --steps 2");
    assert!(
        error.contains("metrics.jsonl does not exist: the lines"),
        "{error}"
    );
    assert!(!metrics.exists());
}

/// Waits until the run has recorded this many steps.
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

/// The run can be resumed from its new place.
#[cfg(unix)]
#[test]
fn moving_the_directory_ends_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let begin = format!("train --out run --steps 100000 {SMALL} {OFTEN}");
    let child = lapwing(home, &begin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_steps(&home.join("run"), 3);
    fs::rename(home.join("run"), home.join("away")).unwrap();
    let ended = Ended::new(home, child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    assert!(
        ended
            .last()
            .starts_with("error: run: cannot be written: it was removed, moved"),
        "{}",
        ended.err
    );
    assert!(!home.join("run").exists());
    let steps = fs::read_to_string(home.join("away/metrics.jsonl")).unwrap();
    let more = steps.matches("\"kind\":\"step\"").count() + 2;
    let resumed = run(home, &format!("train --resume away --steps {more}"));
    assert_eq!(resumed.code, 0, "{}", resumed.err);
}

/// A file size limit stands in for a full disk: writes fail with another error.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_keeps_the_last_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    trained(home, "2");
    let before = files(&home.join("run/checkpoints"));
    // 700 KiB suffice for all files but checkpoints. The shell ignores the signal as the program does.
    let limited = format!(
        "trap '' XFSZ; ulimit -f 700; exec {} train --resume run --steps 4",
        env!("CARGO_BIN_EXE_lapwing")
    );
    let output = Command::new("bash")
        .args(["-c", &limited])
        .current_dir(home)
        .output();
    let full = Ended::new(home, output.unwrap());
    assert_eq!(full.code, 1, "{}", full.err);
    assert!(full.err.contains("the last save is kept"), "{}", full.err);
    assert!(full.last().contains("File too large"), "{}", full.err);
    assert_eq!(files(&home.join("run/checkpoints")), before);
    // With room again, the run ends with the same adapter.
    let resumed = run(home, "train --resume run --steps 4");
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    fs::rename(home.join("run"), home.join("full")).unwrap();
    trained(home, "4");
    let adapter = |run: &str| fs::read(home.join(run).join("adapter/adapter_model.safetensors"));
    assert!(adapter("full").unwrap() == adapter("run").unwrap());
}

#[test]
fn concurrent_runs_have_their_own_directories() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let begin = format!("train --steps 1 {SMALL} {OFTEN}");
    let one = || {
        let mut command = lapwing(home, &begin);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| one()).collect();
    for child in children {
        let ended = Ended::new(home, child.wait_with_output().unwrap());
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
    for name in [
        "frozen-lake-1",
        "frozen-lake-2",
        "frozen-lake-3",
        "frozen-lake-4",
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
