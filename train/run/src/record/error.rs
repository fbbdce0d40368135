//! Errors of records and run directories.

use std::io;
use std::path::{Path, PathBuf};

/// A record or a run directory that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory has files.
    #[error("{} exists and is not empty: choose another place with --out", .0.display())]
    Occupied(PathBuf),
    /// The file system returned an error.
    #[error("{}: cannot be written: {reason}{}", .path.display(), cure(.reason))]
    Write {
        /// The path.
        path: PathBuf,
        /// The error.
        reason: io::Error,
    },
    /// Another process writes there.
    #[error("{} is in use by another lapwing: wait until it is done", .0.display())]
    InUse(PathBuf),
    /// There is something that lapwing did not make.
    #[error("{} exists, and lapwing did not make it: choose another place with --out", .0.display())]
    Foreign(PathBuf),
    /// A file cannot be read.
    #[error("{}: cannot be read: {reason}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A file is missing, too large, or not a text.
    #[error(transparent)]
    Unreadable(lapwing_model::ModelError),
    /// A file or directory is not as it must be.
    #[error("{} {problem}", .path.display())]
    Unfit {
        /// The file or directory.
        path: PathBuf,
        /// The problem and its fix.
        problem: String,
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
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space",
        io::ErrorKind::FileTooLarge => {
            "; the system limits the size of files (ulimit -f): raise that"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; make it writable, or choose another place with --out"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a part of its path is a file: choose another place with --out"
        }
        _ => "",
    }
}

/// Makes the error of a file or directory that is not as it must be.
pub(crate) fn unfit(path: &Path, problem: &str) -> RecordError {
    RecordError::Unfit {
        path: path.to_owned(),
        problem: problem.to_owned(),
    }
}

/// Makes the error of a file that cannot be read.
pub fn read_error(path: &Path, reason: impl ToString) -> RecordError {
    RecordError::Read {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// Makes the error of a write to this path.
pub fn write_error(path: &Path) -> impl FnOnce(io::Error) -> RecordError + '_ {
    move |reason| RecordError::Write {
        path: path.to_owned(),
        reason,
    }
}
