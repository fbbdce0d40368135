//! The directory of a run:
//!
//! ```text
//! config.toml       every value in force; it makes the same run again
//! metrics.jsonl     all metrics, one record a line
//! episodes.jsonl    some complete episodes
//! test.json         the results on test scenes, before and after training
//! sessions.jsonl    one line for each start of lapwing: time, device, step
//! adapter/          the adapter as saved last; or
//! model/            the model, if all weights are trained
//! best/             the same at the best evaluation
//! network.safetensors, best.safetensors    the same two of a value learner
//! warmup/           the adapter after the warm-up, which is the KL reference
//! checkpoints/      everything that resuming needs
//! lock              locked while a run writes here; a crash releases it
//! ```
//!
//! No file in it is ever half-written, and no earlier file is ever replaced.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use lapwing_model::open_regular;

use super::jsonl::{self, Jsonl};
use super::{Record, RecordError, Sink, exists, unfit, write_error};
use crate::config::{Config, PathKind};

/// A run directory, locked against other writers while this value lives.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    lock: File,
    metrics: Jsonl,
    episodes: Jsonl,
}

const CONFIG: &str = "config.toml";
const LOCK: &str = "lock";
/// Hidden, so no setting of a sweep has these names.
const PART_LOCK: &str = ".lock-";

impl RunDirectory {
    /// Creates a run directory, which must be new or empty.
    ///
    /// # Errors
    /// If it has files, another process creates a run there, or it cannot be written; then nothing new is left behind.
    pub fn create(path: &Path, config: &Config) -> Result<RunDirectory, RecordError> {
        RunDirectory::begun(path.to_owned(), make(path)?, config)
    }

    /// Creates the first of the directories NAME-1, NAME-2, NAME-3... in this one that does not exist.
    ///
    /// # Errors
    /// As [`RunDirectory::create`].
    pub fn create_in(parent: &Path, config: &Config) -> Result<RunDirectory, RecordError> {
        let path = make_next(&parent.join(&config.name))?;
        RunDirectory::begun(path, true, config)
    }

    fn begun(path: PathBuf, made: bool, config: &Config) -> Result<RunDirectory, RecordError> {
        let lock = match lock(&path) {
            Err(RecordError::InUse(path)) => return Err(RecordError::Occupied(path)),
            lock => lock?,
        };
        // Checked under the lock, so no other process can interfere.
        if names(&path)? != [LOCK] {
            return Err(RecordError::Occupied(path));
        }
        let file = self::config(&path);
        let written = fs::write(&file, config.to_toml()).map_err(write_error(&file));
        let filled = written.and_then(|()| RunDirectory::with(&path, lock));
        filled.inspect_err(|_| {
            // Only what was created here is removed. If that fails, too, the first error is reported.
            for name in [CONFIG, "metrics.jsonl", "episodes.jsonl", LOCK] {
                let _ = fs::remove_file(path.join(name));
            }
            if made {
                let _ = fs::remove_dir(&path);
            }
        })
    }

    /// Opens a run directory to resume the run.
    ///
    /// # Errors
    /// If it does not exist, another process writes there, or it cannot be written.
    pub fn open(path: &Path) -> Result<RunDirectory, RecordError> {
        is_run(path)?;
        let lock = lock(path)?;
        RunDirectory::with(path, lock)
    }

    fn with(path: &Path, lock: File) -> Result<RunDirectory, RecordError> {
        Ok(RunDirectory {
            path: path.to_owned(),
            lock,
            metrics: Jsonl::open(&metrics(path))?,
            episodes: Jsonl::open(&episodes(path))?,
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the records so far.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, RecordError> {
        jsonl::read(&metrics(&self.path))
    }

    /// Syncs `metrics.jsonl` and `episodes.jsonl` and returns their lengths in bytes.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn bytes(&self) -> Result<[u64; 2], RecordError> {
        self.metrics.sync()?;
        self.episodes.sync()?;
        Ok([self.metrics.bytes()?, self.episodes.bytes()?])
    }

    /// Truncates the two files to these lengths in bytes.
    ///
    /// # Errors
    /// If they are shorter, or cannot be written.
    pub fn cut(&mut self, [metrics, episodes]: [u64; 2]) -> Result<(), RecordError> {
        self.metrics.cut(metrics)?;
        self.episodes.cut(episodes)
    }

    /// Removes the records of a run that stopped before its first checkpoint.
    ///
    /// # Errors
    /// If there are steps, so that it had checkpoints, or the disk fails.
    pub(crate) fn restart(&mut self) -> Result<(), RecordError> {
        let records = self.records()?;
        let steps = records.iter().filter(|r| matches!(r, Record::Step(_)));
        let problem = match steps.count() {
            0 => return self.cut([0, 0]),
            n => format!("has no checkpoint, but records up to step {n}: start a new run"),
        };
        Err(unfit(&self.path, &problem))
    }

    /// Writes the config again, as of the resumed run.
    ///
    /// # Errors
    /// If it cannot be written; then the old one stays.
    pub fn keep_config(&self, config: &Config) -> Result<(), lapwing_model::ModelError> {
        lapwing_model::write_atomically(&self::config(&self.path), config.to_toml().as_bytes())
    }

    /// Adds a line for this start to `sessions.jsonl`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&mut self, session: &Session) -> Result<(), RecordError> {
        let path = sessions(&self.path);
        let line = serde_json::to_string(session).expect("a session is plain values") + "\n";
        let file = open_regular(&path, File::options().create(true).append(true));
        let written = file.and_then(|mut file| io::Write::write_all(&mut file, line.as_bytes()));
        written.map_err(write_error(&path))
    }

    /// Checks that the directory is still the one in which the run began.
    ///
    /// # Errors
    /// If it was removed, moved or replaced.
    pub(crate) fn check(&self) -> Result<(), RecordError> {
        match is_file(&self.lock, &self.path.join(LOCK)) {
            true => Ok(()),
            false => Err(write_error(&self.path)(io::Error::other(
                "it was removed, moved or replaced while the run wrote into it; move it back and continue with --resume",
            ))),
        }
    }
}

impl Sink for RunDirectory {
    fn record(&mut self, record: &Record) -> Result<(), RecordError> {
        self.check()?;
        match record {
            Record::Episode(_) => self.episodes.write(record),
            _ => self.metrics.write(record),
        }
    }
}

/// One start of lapwing on a run: a line of `sessions.jsonl`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Session {
    /// The time of the start, in seconds since 1970 (UTC).
    pub time: f64,
    /// The version of lapwing.
    pub version: String,
    /// Training steps completed before.
    pub step: usize,
    /// The name of the device.
    pub device: String,
    /// The driver, with its version.
    pub driver: String,
    /// vulkan, metal, dx12 or gl.
    pub backend: String,
    /// Whether the processor computes, without a GPU.
    pub software: bool,
    /// The preset or file of the config.
    pub config: String,
    /// The model, with the revision if it has one.
    pub model: String,
}

macro_rules! paths {
    ($($(#[$doc:meta])* $name:ident = $file:expr)*) => {
        $($(#[$doc])*
        pub fn $name(run: &Path) -> PathBuf {
            run.join($file)
        })*
    };
}

paths! {
    /// The adapter's directory in a run directory.
    adapter = "adapter"
    /// The model's directory, in a run that trains all weights.
    model = "model"
    /// The directory of the best adapter or model.
    best = "best"
    /// The directory of the adapter after the warm-up.
    warmup = "warmup"
    /// The file with a value learner's latest network.
    network = "network.safetensors"
    /// The file with a value learner's best network.
    best_network = "best.safetensors"
    /// The directory of the checkpoints.
    checkpoints = "checkpoints"
    /// The file with the metrics.
    metrics = "metrics.jsonl"
    /// The file with some complete episodes.
    episodes = "episodes.jsonl"
    /// The file with the results on test scenes.
    test = "test.json"
    /// The file with a line for each start.
    sessions = "sessions.jsonl"
    /// The directory of the event files for TensorBoard.
    tensorboard = "tensorboard"
    /// The config of a run.
    config = CONFIG
}

/// The trained weights of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trained {
    /// An adapter in this directory.
    Adapter(PathBuf),
    /// A model, all of whose weights were trained, in this directory.
    Model(PathBuf),
}

impl Trained {
    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        match self {
            Trained::Adapter(dir) | Trained::Model(dir) => dir,
        }
    }
}

const UNSAVED: &str = "has no trained weights yet: the run stopped before its first save; `lapwing train --resume` continues it";

/// Returns the best adapter or model of a run; before the first evaluation, the latest.
///
/// # Errors
/// If it has saved nothing, or a network of a value learner.
pub fn trained(run: &Path) -> Result<Trained, RecordError> {
    if network(run).exists() {
        return Err(unfit(
            run,
            "holds a network that reads no words (learner = \"dqn\" or \"pqn\"), and no adapter: only train, eval and \
             play can use it",
        ));
    }
    let is_in = |dir: PathBuf| match PathKind::of(&dir) {
        PathKind::Adapter => Some(Trained::Adapter(dir)),
        PathKind::Model => Some(Trained::Model(dir)),
        _ => None,
    };
    let mut saved = [best(run), adapter(run), model(run)].into_iter();
    saved.find_map(is_in).ok_or_else(|| unfit(run, UNSAVED))
}

/// Returns the best network of a run; before the first evaluation, the latest.
///
/// # Errors
/// If it has none.
pub fn trained_network(run: &Path) -> Result<PathBuf, RecordError> {
    let mut saved = [best_network(run), network(run)].into_iter();
    let found = saved.find(|file| file.exists());
    found.ok_or_else(|| unfit(run, UNSAVED))
}

/// Checks that this is a run directory.
///
/// # Errors
/// If it is not.
pub fn is_run(path: &Path) -> Result<(), RecordError> {
    let problem = match path.is_dir() {
        _ if lapwing_model::is_file(&config(path)) => return Ok(()),
        true => "is not a run",
        false if path.exists() => "is a file",
        false => "does not exist",
    };
    Err(unfit(
        path,
        &format!("{problem}: {}", crate::runs::wanted(path)),
    ))
}

/// Returns whether a process is writing to this directory of a run or a sweep.
pub fn is_in_use(path: &Path) -> bool {
    let lock = open_regular(&path.join(LOCK), File::options().write(true));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Fails early on a directory that [`RunDirectory::create`] would refuse. Changes nothing.
///
/// # Errors
/// If it has files.
pub fn check_free(path: &Path) -> Result<(), RecordError> {
    match path.metadata() {
        Ok(found) if !found.is_dir() => Err(exists(path, "--out")),
        Ok(_) if !names(path)?.is_empty() => Err(RecordError::Occupied(path.to_owned())),
        _ => Ok(()),
    }
}

/// Creates this directory if it does not exist; returns whether it did.
fn make(path: &Path) -> Result<bool, RecordError> {
    check_free(path)?;
    if let Some(parent) = path.parent().filter(|parent| !parent.exists()) {
        fs::create_dir_all(parent).map_err(write_error(path))?;
    }
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(e) => Err(write_error(path)(e)),
    }
}

/// Returns the first of NAME-1, NAME-2, NAME-3... that does not exist.
pub fn next_free(name: &Path) -> PathBuf {
    let numbered = |number: usize| {
        let mut path = name.as_os_str().to_owned();
        path.push(format!("-{number}"));
        PathBuf::from(path)
    };
    let mut free = (1..)
        .map(numbered)
        .filter(|path| path.symlink_metadata().is_err());
    free.next().expect("numbers do not end")
}

/// Creates that directory. Creation is atomic, so concurrent runs get different directories.
fn make_next(name: &Path) -> Result<PathBuf, RecordError> {
    if let Some(parent) = name.parent() {
        fs::create_dir_all(parent).map_err(write_error(parent))?;
    }
    loop {
        let path = next_free(name);
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => (),
            Err(e) => return Err(write_error(&path)(e)),
        }
    }
}

/// Locks the directory of a run against other writers, while the returned file is open.
fn lock(path: &Path) -> Result<File, RecordError> {
    locked(path.join(LOCK), File::try_lock)
}

/// Locks part `number` of `count` of a sweep, while the returned files are open. Other processes can lock other parts of the
/// same division, also on other machines if the file system supports locks.
///
/// # Errors
/// If another process has locked this part or a part of another division, or the directory cannot be written.
pub fn lock_part(path: &Path, number: usize, count: usize) -> Result<[File; 2], RecordError> {
    let whole = match count {
        1 => File::try_lock,
        _ => File::try_lock_shared,
    };
    let whole = locked(path.join(LOCK), whole)?;
    let own = format!("{PART_LOCK}{number}-of-{count}");
    let own = locked(path.join(own), File::try_lock)?;
    for name in names(path)? {
        let part = name.to_str().and_then(|name| name.strip_prefix(PART_LOCK));
        let division = part.and_then(|part| part.split_once("-of-"));
        if division.is_some_and(|(_, other)| other != count.to_string()) {
            // Shared, because other parts look at the same time.
            locked(path.join(name), File::try_lock_shared)?;
        }
    }
    Ok([whole, own])
}

fn locked(name: PathBuf, lock: fn(&File) -> Result<(), TryLockError>) -> Result<File, RecordError> {
    let mut options = File::options();
    // NFS requires a file open for reading for a shared lock, and for writing for an exclusive one.
    options.create(true).truncate(false).read(true).write(true);
    let file = open_regular(&name, &options).map_err(write_error(&name))?;
    // `is_in_use` locks for a moment.
    for _ in 0..10 {
        match lock(&file) {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(10)),
            Err(TryLockError::Error(e)) => return Err(write_error(&name)(e)),
        }
    }
    let directory = name.parent().filter(|_| name.ends_with(LOCK));
    Err(RecordError::InUse(directory.unwrap_or(&name).to_owned()))
}

fn names(path: &Path) -> Result<Vec<std::ffi::OsString>, RecordError> {
    let entries = fs::read_dir(path).map_err(write_error(path))?;
    entries
        .map(|entry| Ok(entry.map_err(write_error(path))?.file_name()))
        .collect()
}

/// Returns whether the open file is still the one at this path.
#[cfg(unix)]
fn is_file(open: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (open, named) = (open.metadata().map(of), path.metadata().map(of));
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}

/// On other systems an open file cannot be removed.
#[cfg(not(unix))]
fn is_file(_: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
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
        assert!(matches!(error, RecordError::Write { .. }));
        #[cfg(unix)]
        assert_snapshot!(told(&error, dir.path()), @"DIR/file/run: cannot be written: Not a directory (os error 20); a part of its path is a file: choose another place with --out");
    }
}
