//! What can go wrong with what a run tells.

use std::io;
use std::path::{Path, PathBuf};

/// Something that could not be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory has files in it.
    #[error("{} exists and is not empty: choose another directory with --out, or remove it", .0.display())]
    Occupied(PathBuf),
    /// The file is there.
    #[error("{} is there already: choose another file with --keep, or remove it", .0.display())]
    Taken(PathBuf),
    /// The file system refused.
    #[error("cannot write {}: {reason}{}", .path.display(), cure(.reason))]
    Write {
        /// What could not be written.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// There is no run there.
    #[error(
        "{} {}: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it",
        .path.display(), if *.is_there { "holds no run" } else { "does not exist" }
    )]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// Whether there is a directory at all.
        is_there: bool,
    },
    /// The run has saved nothing that it learned.
    #[error(
        "{} holds no adapter and no model yet: it was stopped before the first was saved; `lapwing train --resume` goes on with it", .0.display()
    )]
    NoAdapter(PathBuf),
    /// The run has a network in place of an adapter.
    #[error(
        "{} holds a network that reads no words (learner = \"dqn\" or \"pqn\"), and no adapter: train, eval and play take such \
         a run, and nothing else does", .0.display()
    )]
    HasNetwork(PathBuf),
    /// The run has no network.
    #[error(
        "{} holds no network yet: it was stopped before the first was saved; `lapwing train --resume` goes on with it", .0.display()
    )]
    NoNetwork(PathBuf),
    /// Somebody else writes there.
    #[error(
        "{} is in use by another lapwing: wait until it is done, or choose another directory with --out", .0.display()
    )]
    InUse(PathBuf),
    /// The directory is not what it was when the run began.
    #[error(
        "{} was removed, moved or replaced while the run wrote into it: nothing more can be kept there; move it back and \
         go on with --resume", .0.display()
    )]
    Gone(PathBuf),
    /// Something is there that lapwing did not make.
    #[error(
        "{} is there, and lapwing did not make it: choose another place with --out, or move it away",
        .0.display()
    )]
    Foreign(PathBuf),
    /// A file cannot be read back.
    #[error("cannot read {}: {reason}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file has lost lines since a checkpoint was made.
    #[error(
        "{} has {found} bytes, and had {wanted} when the checkpoint was made: lines of it were removed since, and the run \
         cannot go on as if they were there; start a new run from what was learned (--adapter, or --model if all weights were trained)", .path.display()
    )]
    Short {
        /// The file.
        path: PathBuf,
        /// Bytes that it has.
        found: u64,
        /// Bytes that it had.
        wanted: u64,
    },
    /// A measured number is infinite or not a number; JSON knows neither, and neither means anything good.
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

/// What to do about the errors that have a cure.
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

/// The error of a write to this path.
pub fn write_error(path: &Path) -> impl FnOnce(io::Error) -> RecordError + '_ {
    move |reason| RecordError::Write {
        path: path.to_owned(),
        reason,
    }
}
