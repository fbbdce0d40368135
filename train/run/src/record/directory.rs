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
//! No file in it is ever half-written.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use lapwing_model::open_regular;

use super::jsonl::{self, Jsonl};
use super::{Record, RecordError, Sink, unfit, write_error};
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
        let filled = written.and_then(|()| RunDirectory::with(&path, lock, Jsonl::create));
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
    /// If it or one of its records does not exist, another process writes there, or it cannot be written.
    pub fn open(path: &Path) -> Result<RunDirectory, RecordError> {
        is_run(path)?;
        let lock = lock(path)?;
        RunDirectory::with(path, lock, Jsonl::append)
    }

    fn with(
        path: &Path,
        lock: File,
        open: fn(&Path) -> Result<Jsonl, RecordError>,
    ) -> Result<RunDirectory, RecordError> {
        Ok(RunDirectory {
            path: path.to_owned(),
            lock,
            metrics: open(&metrics(path))?,
            episodes: open(&episodes(path))?,
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
    pub(crate) fn keep_config(&self, config: &Config) -> Result<(), lapwing_model::ModelError> {
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
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Session {
    /// The time of the start, in seconds since 1970 (UTC).
    pub time: f64,
    /// The version of lapwing.
    pub version: String,
    /// A checksum of the program, which tells builds of one version apart.
    #[serde(default)]
    pub program: String,
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
    /// The fingerprint of the files of the model and of the starting adapter.
    #[serde(default)]
    pub fingerprint: String,
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

fn unsaved(run: &Path) -> RecordError {
    let why = match is_in_use(run) {
        true => "its first save is after the warm-up and an evaluation",
        false => &format!(
            "the run stopped before its first save; `lapwing train --resume {}` continues it",
            run.display()
        ),
    };
    unfit(run, &format!("has no trained weights yet: {why}"))
}

/// Returns the best adapter or model of a run; before the first evaluation, the latest.
///
/// # Errors
/// If it has saved nothing, or a network of a value learner.
pub fn trained(run: &Path) -> Result<Trained, RecordError> {
    if network(run).exists() {
        return Err(unfit(
            run,
            "holds a network that reads no words (learner = \"dqn\" or \"pqn\"), and no adapter: only train, play and `eval RUN` \
             can use it",
        ));
    }
    let is_in = |dir: PathBuf| match PathKind::of(&dir) {
        PathKind::Adapter => Some(Trained::Adapter(dir)),
        PathKind::Model => Some(Trained::Model(dir)),
        _ => None,
    };
    let mut saved = [best(run), adapter(run), model(run)].into_iter();
    saved.find_map(is_in).ok_or_else(|| unsaved(run))
}

/// Returns the best network of a run; before the first evaluation, the latest.
///
/// # Errors
/// If it has none.
pub fn trained_network(run: &Path) -> Result<PathBuf, RecordError> {
    let mut saved = [best_network(run), network(run)].into_iter();
    let found = saved.find(|file| file.exists());
    found.ok_or_else(|| unsaved(run))
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
        Ok(found) if !found.is_dir() => Err(unfit(path, "exists: choose another place with --out")),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            let problem =
                "cannot be made: a part of its path is a file: choose another place with --out";
            Err(unfit(path, problem))
        }
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
mod tests;
