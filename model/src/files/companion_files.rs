//! What lies beside the weights in a model's directory, and goes along where they do.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use super::weight_files::INDEX;
use crate::{ModelDirectory, ModelError};

/// Tokenizer, template, licence and whatever else lies beside a model's config and weights, byte for byte: for a model that
/// was trained whole, whose directory may be gone by the time it is saved.
pub struct CompanionFiles {
    pub(super) files: Vec<(OsString, Vec<u8>)>,
}

impl ModelDirectory {
    /// Reads what [`Model::save_whole`](crate::Model::save_whole) puts beside the weights.
    ///
    /// # Errors
    /// A file that cannot be read, is larger than such files are, or is a link that leads out of the directory.
    pub fn companions(&self) -> Result<CompanionFiles, ModelError> {
        let mut files = Vec::new();
        for path in self.beside_the_weights()? {
            // A model says by itself what it looks like, and has its weights in one file.
            if path.ends_with("config.json") || path.ends_with(INDEX) {
                continue;
            }
            let name = path.file_name().expect("an entry has a name").to_owned();
            let bytes = fs::read(&path).map_err(|e| ModelError::file(&path, e))?;
            files.push((name, bytes));
        }
        Ok(CompanionFiles { files })
    }

    /// ModelConfig, tokenizer, template, licence: every file that holds no weights.
    ///
    /// The directory may be a stranger's, and a link in it may lead to a private file that would be published with the
    /// model. So links are followed only where they stay in the directory, or lead to the blobs of the Hugging Face
    /// cache that it is a snapshot of.
    pub(crate) fn beside_the_weights(&self) -> Result<Vec<PathBuf>, ModelError> {
        const WEIGHTS: [&str; 8] = [
            "safetensors",
            "bin",
            "pt",
            "pth",
            "gguf",
            "onnx",
            "h5",
            "msgpack",
        ];
        let unreadable = |e: std::io::Error| ModelError::file(self.dir(), e);
        let home = self.dir().canonicalize().map_err(unreadable)?;
        let is_snapshot = home.parent().is_some_and(|p| p.ends_with("snapshots"));
        let blobs = is_snapshot.then(|| home.join("../../blobs").canonicalize());
        let within = [Some(home), blobs.and_then(Result::ok)];
        let (mut rest, mut total) = (Vec::new(), 0);
        for entry in fs::read_dir(self.dir()).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let is = |kind: &str| path.extension().is_some_and(|extension| extension == kind);
            if !path.is_file() || WEIGHTS.iter().any(|kind| is(kind)) {
                continue;
            }
            // Of a directory with both, the single file is what was read.
            if path.ends_with(INDEX) && !self.weights.is_sharded() {
                continue;
            }
            let wrong = |problem: String| ModelError::file(&path, problem);
            let target = path.canonicalize().map_err(|e| wrong(e.to_string()))?;
            if !within
                .iter()
                .flatten()
                .any(|place| target.starts_with(place))
            {
                let cure = "put the file itself there, or take the link away";
                let to = target.display();
                return Err(wrong(format!(
                    "leads out of the directory, to {to}; {cure}"
                )));
            }
            let size = path.metadata().map_err(|e| wrong(e.to_string()))?.len();
            total += size;
            for (found, most, what) in [
                (size, LARGEST_REST, "larger"),
                (
                    total,
                    LARGEST_REST_TOGETHER,
                    "with the files before it, larger",
                ),
            ] {
                if found > most {
                    let cure =
                        "what lies beside the weights is copied with them: move it elsewhere";
                    return Err(wrong(format!("{what} than {} MiB; {cure}", most >> 20)));
                }
            }
            rest.push(path);
        }
        Ok(rest)
    }
}

/// Bytes of a file beside the weights; the largest tokenizers have 35 MB.
const LARGEST_REST: u64 = 256 << 20;
/// ... and of all of them.
const LARGEST_REST_TOGETHER: u64 = 1 << 30;
