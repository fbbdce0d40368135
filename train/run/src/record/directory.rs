//! The directory of a run:
//!
//! ```text
//! config.toml       the config with all values; it repeats the run
//! metrics.jsonl     metrics, one record per line
//! episodes.jsonl    some episodes with all their turns
//! sessions.jsonl    one line per start or resume: time, device, step
//! adapter/          the latest adapter; or
//! model/            the latest model, if all weights are trained
//! best/             the weights with the best evaluation
//! network.safetensors, best.safetensors    the latest and the best network of a value learner
//! checkpoints/      files to resume from
//! lock              locked while a process writes here; the system releases it when the process ends
//! ```
//!
//! Files are written as a whole or not at all. A new run never replaces existing files.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::jsonl::{self, Jsonl};
use super::{Record, RecordError, Sink, write_error};
use crate::Config;

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

impl RunDirectory {
    /// Creates a run directory. An existing directory must be empty.
    ///
    /// # Errors
    /// If the directory has files, another process creates a run in it, or it cannot be written. New files are removed.
    pub fn create(path: &Path, config: &Config) -> Result<RunDirectory, RecordError> {
        RunDirectory::begun(path.to_owned(), make(path)?, config)
    }

    /// Creates the run directory NAME-SEED in `parent`; if that exists, NAME-SEED-2 and so on.
    ///
    /// # Errors
    /// As [`RunDirectory::create`].
    pub fn create_in(parent: &Path, config: &Config) -> Result<RunDirectory, RecordError> {
        let name = format!("{}-{}", config.name, config.train.seed);
        RunDirectory::begun(next_free(&parent.join(name))?, true, config)
    }

    fn begun(path: PathBuf, made: bool, config: &Config) -> Result<RunDirectory, RecordError> {
        let lock = lock(&path)?;
        // Checked under the lock, so that no other run can start here.
        if names(&path)? != [LOCK] {
            return Err(RecordError::Occupied(path));
        }
        let filled = write(&path.join(CONFIG), &config.to_toml())
            .and_then(|()| RunDirectory::with(&path, lock));
        filled.inspect_err(|_| {
            // Remove only new files. If that fails too, the first error is returned.
            for name in [CONFIG, "metrics.jsonl", "episodes.jsonl", LOCK] {
                let _ = fs::remove_file(path.join(name));
            }
            if made {
                let _ = fs::remove_dir(&path);
            }
        })
    }

    /// Opens the directory of a run to resume it.
    ///
    /// # Errors
    /// If it is not a run's, is locked by another process, or cannot be written.
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

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the records of `metrics.jsonl`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, RecordError> {
        jsonl::read(&metrics(&self.path))
    }

    /// Syncs `metrics.jsonl` and `episodes.jsonl`. Returns their lengths in bytes.
    ///
    /// # Errors
    /// If that fails.
    pub fn bytes(&self) -> Result<[u64; 2], RecordError> {
        self.metrics.sync()?;
        self.episodes.sync()?;
        Ok([self.metrics.bytes()?, self.episodes.bytes()?])
    }

    /// Truncates `metrics.jsonl` and `episodes.jsonl` to these lengths.
    ///
    /// # Errors
    /// If a file is shorter or cannot be written.
    pub fn cut(&mut self, [metrics, episodes]: [u64; 2]) -> Result<(), RecordError> {
        self.metrics.cut(metrics)?;
        self.episodes.cut(episodes)
    }

    /// Replaces `config.toml` when a run resumes with a changed config.
    ///
    /// # Errors
    /// If the file cannot be written. The old one remains.
    pub fn keep_config(&self, config: &Config) -> Result<(), lapwing_model::ModelError> {
        lapwing_model::write_atomically(&self::config(&self.path), config.to_toml().as_bytes())
    }

    /// Appends a session to `sessions.jsonl`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn begin(&mut self, session: &Session) -> Result<(), RecordError> {
        let path = sessions(&self.path);
        let line = serde_json::to_string(session).expect("a session is plain values") + "\n";
        let file = File::options().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| io::Write::write_all(&mut file, line.as_bytes()));
        written.map_err(write_error(&path))
    }

    /// Checks that the path still names the directory that was opened.
    ///
    /// # Errors
    /// If the directory was removed, moved or replaced.
    pub fn check(&self) -> Result<(), RecordError> {
        match is_file(&self.lock, &self.path.join(LOCK)) {
            true => Ok(()),
            false => Err(RecordError::Gone(self.path.clone())),
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

/// A start or resume of a run: a line of `sessions.jsonl`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Session {
    /// Its start, in seconds since 1970 (UTC).
    pub time: f64,
    /// The version of lapwing.
    pub version: String,
    /// Training steps before it.
    pub step: usize,
    /// The name of the device.
    pub device: String,
    /// The device's driver and its version.
    pub driver: String,
    /// vulkan, metal, dx12 or gl.
    pub backend: String,
    /// Whether the device is a CPU.
    pub software: bool,
    /// The preset or file of the config.
    pub config: String,
    /// The model and its revision if it has one.
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
    /// The directory with the latest adapter.
    adapter = "adapter"
    /// The directory with the latest model of a run that trains all weights.
    model = "model"
    /// The directory with the adapter or model of the best evaluation.
    best = "best"
    /// The file with the latest network of a value learner.
    network = "network.safetensors"
    /// The file with the network of the best evaluation.
    best_network = "best.safetensors"
    /// The directory with the checkpoints.
    checkpoints = "checkpoints"
    /// The file with the metrics.
    metrics = "metrics.jsonl"
    /// The file with some episodes.
    episodes = "episodes.jsonl"
    /// The file with the [`Session`]s.
    sessions = "sessions.jsonl"
    /// The directory with event files for TensorBoard, if there are any.
    tensorboard = "tensorboard"
    /// The file with the config.
    config = CONFIG
}

/// The trained weights of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trained {
    /// An adapter, in this directory.
    Adapter(PathBuf),
    /// A model whose weights were all trained, in this directory.
    Model(PathBuf),
}

impl Trained {
    /// Its directory.
    pub fn dir(&self) -> &Path {
        match self {
            Trained::Adapter(dir) | Trained::Model(dir) => dir,
        }
    }
}

/// Returns the weights of a run's best evaluation or, if there is none, the latest ones.
///
/// # Errors
/// If the run has no weights yet, or trained a value network.
pub fn trained(run: &Path) -> Result<Trained, RecordError> {
    if network(run).exists() {
        return Err(RecordError::HasNetwork(run.to_owned()));
    }
    let is_in = |dir: PathBuf| {
        if dir.join("adapter_config.json").exists() {
            Some(Trained::Adapter(dir))
        } else if dir.join("config.json").exists() {
            Some(Trained::Model(dir))
        } else {
            None
        }
    };
    let mut saved = [best(run), adapter(run), model(run)].into_iter();
    saved
        .find_map(is_in)
        .ok_or_else(|| RecordError::NoAdapter(run.to_owned()))
}

/// Returns the network of a run's best evaluation or, if there is none, the latest one.
///
/// # Errors
/// If the run has no network.
pub fn trained_network(run: &Path) -> Result<PathBuf, RecordError> {
    let mut saved = [best_network(run), network(run)].into_iter();
    let first = saved.find(|file| file.exists());
    first.ok_or_else(|| RecordError::NoNetwork(run.to_owned()))
}

/// Checks that this is the directory of a run.
///
/// # Errors
/// If it is not.
pub fn is_run(path: &Path) -> Result<(), RecordError> {
    match config(path).is_file() {
        true => Ok(()),
        false => Err(RecordError::NoRun {
            path: path.to_owned(),
            is_there: path.is_dir(),
        }),
    }
}

/// Whether a process has locked this run.
pub fn is_in_use(run: &Path) -> bool {
    let lock = File::options().write(true).open(run.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Checks that [`RunDirectory::create`] may use this directory. Changes nothing.
///
/// # Errors
/// If the directory has files.
pub fn check_free(path: &Path) -> Result<(), RecordError> {
    match path.is_dir() && !names(path)?.is_empty() {
        true if is_in_use(path) => Err(RecordError::InUse(path.to_owned())),
        true => Err(RecordError::Occupied(path.to_owned())),
        false => Ok(()),
    }
}

/// Creates the directory if it does not exist. Returns whether it did.
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

/// Creates the first of NAME, NAME-2, NAME-3... that does not exist. Creation is atomic, so that runs that start at the
/// same time get different directories.
fn next_free(name: &Path) -> Result<PathBuf, RecordError> {
    if let Some(parent) = name.parent() {
        fs::create_dir_all(parent).map_err(write_error(parent))?;
    }
    for number in 1.. {
        let path = match number {
            1 => name.to_owned(),
            number => PathBuf::from(format!("{}-{number}", name.display())),
        };
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => (),
            Err(e) => return Err(write_error(&path)(e)),
        }
    }
    unreachable!("numbers do not end")
}

fn lock(path: &Path) -> Result<File, RecordError> {
    let name = path.join(LOCK);
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    let file = options.open(&name).map_err(write_error(&name))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RecordError::InUse(path.to_owned())),
        Err(TryLockError::Error(e)) => Err(write_error(&name)(e)),
    }
}

fn write(path: &Path, text: &str) -> Result<(), RecordError> {
    fs::write(path, text).map_err(write_error(path))
}

fn names(path: &Path) -> Result<Vec<std::ffi::OsString>, RecordError> {
    let entries = fs::read_dir(path).map_err(write_error(path))?;
    entries
        .map(|entry| Ok(entry.map_err(write_error(path))?.file_name()))
        .collect()
}

/// Whether the path names the open file.
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

    /// The error message with DIR for the temporary directory.
    fn message(error: &RecordError, dir: &Path) -> String {
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
    fn a_directory_with_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "precious").unwrap();
        let error = RunDirectory::create(dir.path(), &config()).unwrap_err();
        assert_snapshot!(message(&error, dir.path()), @"DIR exists and is not empty: choose another directory with --out, or remove it");
        assert_eq!(names(dir.path()), ["notes.txt"]);
        let error = RunDirectory::open(dir.path()).unwrap_err();
        assert_snapshot!(message(&error, dir.path()), @"DIR holds no run: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it");
        let error = RunDirectory::open(&dir.path().join("runs/1")).unwrap_err();
        assert_snapshot!(message(&error, dir.path()), @"DIR/runs/1 does not exist: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it");
    }

    #[test]
    fn one_run_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(dir.path(), &config()).unwrap();
        assert!(is_in_use(dir.path()));
        for error in [
            RunDirectory::open(dir.path()).unwrap_err(),
            RunDirectory::create(dir.path(), &config()).unwrap_err(),
        ] {
            assert_eq!(
                message(&error, dir.path()),
                "DIR is in use by another lapwing: wait until it is done, or choose another directory with --out"
            );
        }
        drop(run);
        assert!(!is_in_use(dir.path()));
        RunDirectory::open(dir.path()).unwrap();
        let error = RunDirectory::create(dir.path(), &config()).unwrap_err();
        assert!(matches!(error, RecordError::Occupied(_)), "{error}");
    }

    /// Runs that start at the same time get different directories.
    #[test]
    fn default_names_are_numbered() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("runs/frozen-lake-1");
        let begin = std::sync::Barrier::new(8);
        let mut made: Vec<PathBuf> = std::thread::scope(|scope| {
            let one = || {
                begin.wait();
                next_free(&name).unwrap()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        made.sort();
        let expected = (1..=8).map(|n| match n {
            1 => name.clone(),
            n => PathBuf::from(format!("{}-{n}", name.display())),
        });
        assert_eq!(made, expected.collect::<Vec<_>>());
    }

    /// One process creates the run, and the others leave its files as they are.
    #[test]
    fn of_several_runs_in_one_directory_only_one_starts() {
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
    fn a_moved_directory_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut run = RunDirectory::create(&path, &config()).unwrap();
        let record = Record::Step(lapwing_learn::metrics::StepMetrics::default());
        run.record(&record).unwrap();
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        assert_snapshot!(message(&run.record(&record).unwrap_err(), dir.path()), @"DIR/run was removed, moved or replaced while the run wrote into it: nothing more can be kept there; move it back and go on with --resume");
        // A new directory of the same name is another run.
        let other = RunDirectory::create(&path, &config()).unwrap();
        assert!(run.record(&record).is_err());
        assert_eq!(other.records().unwrap(), []);
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = RunDirectory::create(&dir.path().join("file/run"), &config()).unwrap_err();
        assert!(matches!(error, RecordError::Write { .. }));
        #[cfg(unix)]
        assert_snapshot!(message(&error, dir.path()), @"cannot write DIR/file/run: Not a directory (os error 20); a part of its path is a file: choose another place with --out");
    }
}
