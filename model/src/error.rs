//! The one error of this crate: what is wrong with which file, and what to do about it.

use std::path::{Path, PathBuf};

use lapwing_tensor::GpuError;

/// What can go wrong between a model directory and a running model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file cannot be read, written or understood.
    #[error("{}: {problem}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// One field of a configuration file is missing, absurd or not supported.
    #[error("{}: {field}: {problem}", .path.display())]
    Field {
        /// The configuration file.
        path: PathBuf,
        /// The field as it is spelled there.
        field: String,
        /// What was found against what was wanted.
        problem: String,
    },
    /// One tensor of a weight file is missing, misshapen or holds impossible values.
    #[error("{}: tensor {tensor}: {problem}", .path.display())]
    Tensor {
        /// The weight file, or the directory where no file holds the tensor.
        path: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
        /// What was found against what was wanted.
        problem: String,
    },
    /// What was said of the layers to adapt means none, or nothing.
    #[error("target modules \"{found}\": {problem}")]
    Targets {
        /// The name or pattern.
        found: String,
        /// What is wrong with it.
        problem: String,
    },
    /// More tokens at once than the arena may hold.
    #[error(
        "the KV arena is full: {wanted} tokens wanted, at most {most} fit; use shorter prompts or replies"
    )]
    ArenaFull {
        /// Tokens that would have to be held.
        wanted: usize,
        /// Tokens that can be.
        most: usize,
    },
    /// The model computes what is no number.
    #[error(
        "the model's logits are not numbers: its weights, or those of the LoRA adapter on it, are damaged or too large, or \
         the GPU computes wrong numbers"
    )]
    NotNumbers,
    /// What the device reported.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl ModelError {
    pub(crate) fn file(path: &Path, problem: impl ToString) -> ModelError {
        let (path, problem) = (path.to_owned(), problem.to_string());
        ModelError::File { path, problem }
    }

    /// A write that failed, with the cure where there is one.
    pub fn unwritable(path: &Path, error: std::io::Error) -> ModelError {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let cure = match error.kind() {
            StorageFull | QuotaExceeded => "; free some space, or choose another place",
            FileTooLarge => "; the system limits the size of files (ulimit -f): raise that",
            _ => "",
        };
        ModelError::file(path, format!("cannot be written: {error}{cure}"))
    }

    /// The same about the place where a file is going to be, which was written aside.
    pub(crate) fn moved(mut self, from: &Path, to: &Path) -> ModelError {
        if let ModelError::File { path, .. }
        | ModelError::Field { path, .. }
        | ModelError::Tensor { path, .. } = &mut self
            && let Ok(within) = path.strip_prefix(from)
        {
            *path = to.join(within);
        }
        self
    }

    pub(crate) fn field(path: &Path, field: &str, problem: impl ToString) -> ModelError {
        let (path, field, problem) = (path.to_owned(), field.to_owned(), problem.to_string());
        ModelError::Field {
            path,
            field,
            problem,
        }
    }

    pub(crate) fn targets(found: &str, problem: impl ToString) -> ModelError {
        let (found, problem) = (found.to_owned(), problem.to_string());
        ModelError::Targets { found, problem }
    }

    pub(crate) fn tensor(path: &Path, tensor: &str, problem: impl ToString) -> ModelError {
        let (path, tensor, problem) = (path.to_owned(), tensor.to_owned(), problem.to_string());
        ModelError::Tensor {
            path,
            tensor,
            problem,
        }
    }
}
