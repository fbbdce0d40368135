//! The error type of this crate.

use std::path::{Path, PathBuf};

use lapwing_tensor::GpuError;

/// An error of a model, an adapter or their files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A file cannot be read, written or parsed.
    #[error("{}: {problem}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// A field of a configuration file is missing, out of range or not supported.
    #[error("{}: {field}: {problem}", .path.display())]
    Field {
        /// The configuration file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The value found and the value wanted.
        problem: String,
    },
    /// A tensor of a weight file is missing, or has a wrong shape or wrong values.
    #[error("{}: tensor {tensor}: {problem}", .path.display())]
    Tensor {
        /// The weight file, or the directory if no file has the tensor.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// The value found and the value wanted.
        problem: String,
    },
    /// The targets of an adapter are invalid or select no layer.
    #[error("target modules \"{found}\": {problem}")]
    Targets {
        /// The name or pattern.
        found: String,
        /// The problem.
        problem: String,
    },
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
    pub(crate) fn file(path: &Path, problem: impl ToString) -> ModelError {
        let (path, problem) = (path.to_owned(), problem.to_string());
        ModelError::File { path, problem }
    }

    /// Returns the error for a failed write, with a hint if there is one.
    pub fn unwritable(path: &Path, error: std::io::Error) -> ModelError {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let hint = match error.kind() {
            StorageFull | QuotaExceeded => "; free some space, or choose another directory",
            FileTooLarge => "; the system limits the size of files (ulimit -f): raise that",
            _ => "",
        };
        ModelError::file(path, format!("cannot be written: {error}{hint}"))
    }

    /// Replaces the temporary path of a file by its final path.
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
