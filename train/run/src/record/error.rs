//! Errors of reading and writing records and run directories.

use std::io;
use std::path::{Path, PathBuf};

/// An error of reading or writing records or a run directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory is not empty.
    #[error("{} exists and is not empty: choose another directory with --out, or remove it", .0.display())]
    Occupied(PathBuf),
    /// The file exists.
    #[error("{} is there already: choose another file with --keep, or remove it", .0.display())]
    Taken(PathBuf),
    /// A file cannot be written.
    #[error("cannot write {}: {reason}{}", .path.display(), hint(.reason))]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// The directory does not hold a run.
    #[error(
        "{} {}: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it",
        .path.display(), if *.is_there { "holds no run" } else { "does not exist" }
    )]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// Whether the directory exists.
        is_there: bool,
    },
    /// The run has not saved any weights yet.
    #[error(
        "{} holds no adapter and no model yet: it was stopped before the first was saved; `lapwing train --resume` goes on with it", .0.display()
    )]
    NoAdapter(PathBuf),
    /// The run trained a value network, which is not an adapter.
    #[error(
        "{} holds a network that reads no words (learner = \"dqn\" or \"pqn\"), and no adapter: train, eval and play take such \
         a run, and nothing else does", .0.display()
    )]
    HasNetwork(PathBuf),
    /// The run has not saved a network yet.
    #[error(
        "{} holds no network yet: it was stopped before the first was saved; `lapwing train --resume` goes on with it", .0.display()
    )]
    NoNetwork(PathBuf),
    /// Another process writes to the directory.
    #[error(
        "{} is in use by another lapwing: wait until it is done, or choose another directory with --out", .0.display()
    )]
    InUse(PathBuf),
    /// The directory was removed, moved or replaced during the run.
    #[error(
        "{} was removed, moved or replaced while the run wrote into it: nothing more can be kept there; move it back and \
         go on with --resume", .0.display()
    )]
    Gone(PathBuf),
    /// The path exists and lapwing did not create it.
    #[error(
        "{} is there, and lapwing did not make it: choose another place with --out, or move it away",
        .0.display()
    )]
    Foreign(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file is shorter than when a checkpoint was saved.
    #[error(
        "{} has {found} bytes, and had {wanted} when the checkpoint was made: lines of it were removed since, and the run \
         cannot go on as if they were there; start a new run from what was learned (--adapter, or --model if all weights were trained)", .path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        found: u64,
        /// Its length in bytes when the checkpoint was saved.
        wanted: u64,
    },
    /// A metric is infinite or NaN.
    #[error(
        "step {step}: `{metric}` is not a finite number: training has diverged; try a smaller train.lr"
    )]
    NotFinite {
        /// The training step.
        step: usize,
        /// The metric.
        metric: String,
    },
}

/// How to fix common errors, appended to the message.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or choose another place with --out"
        }
        io::ErrorKind::FileTooLarge => {
            "; the system limits the size of files (ulimit -f): raise that"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose another place with --out"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a part of its path is a file: choose another place with --out"
        }
        _ => "",
    }
}

/// Returns a function that converts an I/O error of this path.
pub fn write_error(path: &Path) -> impl FnOnce(io::Error) -> RecordError + '_ {
    move |reason| RecordError::Write {
        path: path.to_owned(),
        reason,
    }
}
