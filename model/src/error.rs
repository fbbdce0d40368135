//! The error type of this crate.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use lapwing_tensor::GpuError;

/// An error of a model, an adapter or their files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file cannot be read or parsed, or a field or tensor in it is missing, wrong or not supported.
    #[error("{}: {problem}", .path.display())]
    File {
        /// The file, or the directory if the problem is that of several files.
        path: PathBuf,
        /// The problem, after the name of the field or tensor.
        problem: String,
    },
    /// A file or directory cannot be written.
    #[error("{}: cannot be written: {reason}", .path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The reason, with a hint if there is one.
        reason: String,
    },
    /// The targets of an adapter are invalid or select no layer: the name or pattern, and the problem.
    #[error("target modules {0}")]
    Targets(String),
    /// The hub refuses a request, cannot be reached or sends wrong data: the repository, and the problem.
    #[error("{0}")]
    Hub(String),
    /// The system killed the sandbox of a model's text files twice.
    #[error("{0}")]
    Killed(String),
    /// The KV arena cannot hold more tokens.
    #[error(
        "the KV arena is full: {wanted} tokens wanted, at most {most} fit; use shorter prompts or replies"
    )]
    ArenaFull {
        /// Tokens to hold.
        wanted: usize,
        /// Tokens that fit.
        most: usize,
    },
    /// The model's logits are NaN or infinite.
    #[error(
        "the model's logits are not numbers: its weights, or those of the LoRA adapter on it, are damaged or too large, or \
         the GPU computes wrong numbers"
    )]
    NotNumbers,
    /// An error of the device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl ModelError {
    pub(crate) fn file(path: &Path, problem: impl Display) -> ModelError {
        let (path, problem) = (path.to_owned(), problem.to_string());
        ModelError::File { path, problem }
    }

    /// Returns the error for a failed read.
    pub fn unreadable(path: &Path, problem: impl Display) -> ModelError {
        ModelError::file(path, format!("cannot be read: {problem}"))
    }

    /// Returns the error for a failed write, with a hint if there is one.
    pub fn unwritable(path: &Path, error: std::io::Error) -> ModelError {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let hint = match error.kind() {
            StorageFull | QuotaExceeded => "; free some space, or choose another directory",
            FileTooLarge => "; the system limits the size of files (ulimit -f): raise that",
            _ => "",
        };
        let (path, reason) = (path.to_owned(), format!("{error}{hint}"));
        ModelError::Write { path, reason }
    }

    /// Replaces the temporary path of a file by its final path.
    pub(crate) fn moved(mut self, from: &Path, to: &Path) -> ModelError {
        if let ModelError::File { path, .. } | ModelError::Write { path, .. } = &mut self
            && let Ok(within) = path.strip_prefix(from)
        {
            *path = to.join(within);
        }
        self
    }

    pub(crate) fn field(path: &Path, field: &str, problem: impl Display) -> ModelError {
        ModelError::file(path, format!("{field}: {problem}"))
    }

    pub(crate) fn tensor(path: &Path, tensor: &str, problem: impl Display) -> ModelError {
        ModelError::file(path, format!("tensor {tensor}: {problem}"))
    }

    pub(crate) fn targets(found: &str, problem: impl Display) -> ModelError {
        ModelError::Targets(format!("\"{found}\": {problem}"))
    }
}
