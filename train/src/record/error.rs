//! What can go wrong with what a run tells.

use std::io;
use std::path::{Path, PathBuf};

/// Something that could not be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory has files in it.
    #[error("{} exists and is not empty: choose another directory with --out, or remove it", .path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot write {}: {reason}{}", .path.display(), cure(.reason))]
    Write {
        /// What could not be written.
        path: PathBuf,
        /// Why.
        reason: io::Error,
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
pub(crate) fn write_error(path: &Path) -> impl FnOnce(io::Error) -> RecordError + '_ {
    move |reason| RecordError::Write {
        path: path.to_owned(),
        reason,
    }
}
