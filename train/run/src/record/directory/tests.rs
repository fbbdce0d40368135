use insta::assert_snapshot;

use super::*;

const IN_USE: &str = "DIR is in use by another lapwing: wait until it is done";

fn config() -> Config {
    Config::load("frozen-lake", &[]).unwrap()
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// Returns the error without the path of the temporary directory.
fn told(error: &RecordError, dir: &Path) -> String {
    error.to_string().replace(dir.to_str().unwrap(), "DIR")
}

#[test]
fn the_config_in_a_run_directory_makes_the_same_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let run = RunDirectory::create(&path, &config()).unwrap();
    assert_eq!(
        names(&path),
        ["config.toml", "episodes.jsonl", "lock", "metrics.jsonl"]
    );
    let written = super::config(run.path());
    assert_eq!(
        Config::load(written.to_str().unwrap(), &[]).unwrap(),
        config()
    );
}

#[test]
fn a_directory_with_files_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "precious").unwrap();
    let error = RunDirectory::create(dir.path(), &config()).unwrap_err();
    assert_snapshot!(told(&error, dir.path()), @"DIR exists and is not empty: choose another place with --out");
    assert_eq!(names(dir.path()), ["notes.txt"]);
    let error = RunDirectory::open(dir.path()).unwrap_err();
    assert_snapshot!(told(&error, dir.path()), @"DIR is not a run: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it");
    let error = RunDirectory::open(&dir.path().join("runs/1")).unwrap_err();
    assert_snapshot!(told(&error, dir.path()), @"DIR/runs/1 does not exist: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it");
    let error = RunDirectory::open(&dir.path().join("notes.txt")).unwrap_err();
    assert_snapshot!(told(&error, dir.path()), @"DIR/notes.txt is a file: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it");
}

/// Without its checkpoints a run would begin again, and lose its records.
#[test]
fn a_run_with_steps_does_not_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = RunDirectory::create(dir.path(), &config()).unwrap();
    let step = lapwing_learn::metrics::StepMetrics::whole();
    run.record(&Record::Step(step)).unwrap();
    let bytes = run.bytes().unwrap();
    let error = run.restart().unwrap_err();
    assert_snapshot!(told(&error, dir.path()), @"DIR has no checkpoint, but records up to step 1: start a new run");
    assert_eq!(run.bytes().unwrap(), bytes);
    run.cut([0, 0]).unwrap();
    run.restart().unwrap();
}

#[test]
fn one_run_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let run = RunDirectory::create(dir.path(), &config()).unwrap();
    assert!(is_in_use(dir.path()));
    let error = RunDirectory::open(dir.path()).unwrap_err();
    assert_eq!(told(&error, dir.path()), IN_USE);
    // To wait would not help.
    let error = RunDirectory::create(dir.path(), &config()).unwrap_err();
    assert!(matches!(error, RecordError::Occupied(_)), "{error}");
    drop(run);
    assert!(!is_in_use(dir.path()));
    RunDirectory::open(dir.path()).unwrap();
    let error = RunDirectory::create(dir.path(), &config()).unwrap_err();
    assert!(matches!(error, RecordError::Occupied(_)), "{error}");
}

/// Only parts of one division work at the same time, and nothing else beside them.
#[test]
fn parts_lock_out_the_whole_and_other_divisions() {
    let dir = tempfile::tempdir().unwrap();
    let told = |error| told(&error, dir.path());
    let part = |number, count| lock_part(dir.path(), number, count);
    let whole = part(1, 1).unwrap();
    assert_eq!(told(part(1, 2).unwrap_err()), IN_USE);
    drop(whole);
    let mut parts: Vec<[File; 2]> = (1..=2).map(|number| part(number, 2).unwrap()).collect();
    assert!(is_in_use(dir.path()));
    assert_eq!(told(lock(dir.path()).unwrap_err()), IN_USE);
    for (number, count) in [(2, 2), (2, 12), (3, 3)] {
        let error = told(part(number, count).unwrap_err());
        assert!(
            error.starts_with("DIR/.lock-") && error.contains("-of-2 is in use"),
            "{error}"
        );
    }
    parts.pop();
    part(2, 2).unwrap();
    parts.pop();
    // The files of the old division are left.
    part(3, 3).unwrap();
    lock(dir.path()).unwrap();
    assert!(!is_in_use(dir.path()));
}

/// Such as that of [`is_in_use`].
#[test]
fn a_momentary_lock_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let first = lock(dir.path()).unwrap();
    let second = std::thread::spawn({
        let path = dir.path().to_owned();
        move || lock(&path).map(drop)
    });
    sleep(Duration::from_millis(10));
    drop(first);
    second.join().unwrap().unwrap();
}

/// Concurrent runs get complete directories of their own.
#[test]
fn the_default_name_counts_on() {
    let dir = tempfile::tempdir().unwrap();
    let name = dir.path().join("runs/frozen-lake");
    let begin = std::sync::Barrier::new(8);
    let mut made: Vec<PathBuf> = std::thread::scope(|scope| {
        let one = || {
            begin.wait();
            make_next(&name).unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    made.sort();
    let expected = (1..=8).map(|n| PathBuf::from(format!("{}-{n}", name.display())));
    assert_eq!(made, expected.collect::<Vec<_>>());
}

/// Of many that request the same directory one gets it, and the others leave it unchanged.
#[test]
fn of_two_runs_in_one_directory_one_is_refused() {
    for _ in 0..30 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let begin = std::sync::Barrier::new(4);
        let runs: Vec<Result<RunDirectory, RecordError>> = std::thread::scope(|scope| {
            let one = || {
                begin.wait();
                RunDirectory::create(&path, &config())
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(runs.iter().filter(|run| run.is_ok()).count(), 1);
        assert_eq!(
            names(&path),
            ["config.toml", "episodes.jsonl", "lock", "metrics.jsonl"]
        );
    }
}

#[cfg(unix)]
#[test]
fn a_directory_that_is_taken_away_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut run = RunDirectory::create(&path, &config()).unwrap();
    let record = Record::Step(lapwing_learn::metrics::StepMetrics::default());
    run.record(&record).unwrap();
    fs::rename(&path, dir.path().join("elsewhere")).unwrap();
    assert_snapshot!(told(&run.record(&record).unwrap_err(), dir.path()), @"DIR/run: cannot be written: it was removed, moved or replaced while the run wrote into it; move it back and continue with --resume");
    // Another file of that name is not the same.
    let other = RunDirectory::create(&path, &config()).unwrap();
    assert!(run.record(&record).is_err());
    assert_eq!(other.records().unwrap(), []);
}

/// Opening a pipe waits for its other end, and a device is read without end.
#[cfg(unix)]
#[test]
fn special_files_are_refused() {
    use crate::checkpoint;
    use std::os::unix::fs::symlink;
    let dir = tempfile::tempdir().unwrap();
    drop(RunDirectory::create(dir.path(), &config()).unwrap());
    let folder = checkpoints(dir.path());
    fs::create_dir(&folder).unwrap();
    symlink("/dev/zero", folder.join("step-000009.safetensors")).unwrap();
    let (saved, damaged) = checkpoint::latest(dir.path());
    assert!(saved.is_none());
    assert_snapshot!(damaged[0].to_string().replace(dir.path().to_str().unwrap(), "DIR"), @"DIR/checkpoints/step-000009.safetensors: the checkpoint is damaged: not a file");
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for file in [
        metrics(dir.path()),
        episodes(dir.path()),
        dir.path().join(LOCK),
    ] {
        let kept = dir.path().join("kept");
        fs::rename(&file, &kept).unwrap();
        symlink(&pipe, &file).unwrap();
        assert!(!is_in_use(dir.path()));
        let error = RunDirectory::open(dir.path()).unwrap_err().to_string();
        let wanted = format!("{}: cannot be written: not a file", file.display());
        assert_eq!(error, wanted);
        assert!(jsonl::read::<Record>(&pipe).is_err());
        fs::rename(&kept, &file).unwrap();
    }
    RunDirectory::open(dir.path()).unwrap();
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let error = RunDirectory::create(&dir.path().join("file/run"), &config()).unwrap_err();
    #[cfg(unix)]
    assert_snapshot!(told(&error, dir.path()), @"DIR/file/run cannot be made: a part of its path is a file: choose another place with --out");
}
