//! Errors of records and run directories.

use std::io;
use std::path::{Path, PathBuf};

/// A record or a run directory that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory has files.
    #[error("{} exists and is not empty: choose another directory with --out, or remove it", .0.display())]
    Occupied(PathBuf),
    /// The file exists.
    #[error("{} is there already: choose another file with --keep, or remove it", .0.display())]
    Taken(PathBuf),
    /// The file system returned an error.
    #[error("cannot write {}: {reason}{}", .path.display(), cure(.reason))]
    Write {
        /// The path.
        path: PathBuf,
        /// The error.
        reason: io::Error,
    },
    /// There is no run.
    #[error(
        "{} {}: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it",
        .path.display(), if *.is_there { "contains no run" } else { "does not exist" }
    )]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// Whether the directory exists.
        is_there: bool,
    },
    /// The run has saved no weights.
    #[error(
        "{} has no adapter or model yet: the run stopped before its first save; `lapwing train --resume` continues it", .0.display()
    )]
    NoAdapter(PathBuf),
    /// The run has a network instead of an adapter.
    #[error(
        "{} holds a network that reads no words (learner = \"dqn\" or \"pqn\"), and no adapter: train, eval and play take such \
         a run, and nothing else does", .0.display()
    )]
    HasNetwork(PathBuf),
    /// The run has no network.
    #[error(
        "{} has no network yet: the run stopped before its first save; `lapwing train --resume` continues it", .0.display()
    )]
    NoNetwork(PathBuf),
    /// Another process writes there.
    #[error(
        "{} is in use by another lapwing: wait until it is done, or choose another directory with --out", .0.display()
    )]
    InUse(PathBuf),
    /// The directory is not the one in which the run began.
    #[error(
        "{} was removed, moved or replaced while the run wrote into it: nothing more can be written there; move it back and \
         continue with --resume", .0.display()
    )]
    Gone(PathBuf),
    /// There is something that lapwing did not make.
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
    /// A file has become shorter since a checkpoint.
    #[error(
        "{} has {found} bytes, and had {wanted} when the checkpoint was made: lines of it were removed since, and the run \
         cannot continue without them; start a new run from the trained weights (--adapter, or --model if all weights were trained)", .path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        found: u64,
        /// Its length at the checkpoint.
        wanted: u64,
    },
    /// A metric is not finite. JSON has no such numbers.
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

/// Returns the fix for errors that have one.
fn cure(error: &io::Error) -> &'static str {
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

/// Makes the error of a write to this path.
pub fn write_error(path: &Path) -> impl FnOnce(io::Error) -> RecordError + '_ {
    move |reason| RecordError::Write {
        path: path.to_owned(),
        reason,
    }
}
