//! The files beside the weights of a model directory, which are copied with them. Those of a GGUF file are made from its
//! metadata.

use std::ffi::OsString;
use std::path::PathBuf;

use super::disk::{self, MOST_BESIDE, read_file};
use super::gguf::is_gguf;
use super::weight_files::INDEX;
use crate::{ModelDirectory, ModelError};

/// The tokenizer, template, licence and other files beside a model's config and weights, in memory: the directory of a model
/// that is trained may be gone by the time it is saved.
#[derive(Debug)]
pub struct CompanionFiles {
    pub(crate) files: Vec<(OsString, Vec<u8>)>,
}

impl ModelDirectory {
    /// Reads the files that [`Model::save_whole`](crate::Model::save_whole) writes beside the weights.
    ///
    /// # Errors
    /// A file cannot be read, is too large, or is a link out of the directory.
    pub fn companions(&self) -> Result<CompanionFiles, ModelError> {
        let mut files = self.text_companions()?;
        if is_gguf(self.dir()) {
            return Ok(CompanionFiles { files });
        }
        for path in self.beside_the_weights()? {
            // A saved model has its own config and no index.
            if path.ends_with("config.json") || path.ends_with(INDEX) {
                continue;
            }
            let name = path.file_name().expect("an entry has a name").to_owned();
            let bytes =
                read_file(&path, MOST_BESIDE).map_err(|e| ModelError::unreadable(&path, e))?;
            files.push((name, bytes));
        }
        Ok(CompanionFiles { files })
    }

    /// Whether the tokenizer is not that of the directory or the GGUF file with the weights.
    pub(crate) fn has_other_text(&self) -> bool {
        self.text_dir() != self.dir()
    }

    /// Returns the files of the tokenizer and the chat template, unless [`Self::beside_the_weights`] has them.
    pub(crate) fn text_companions(&self) -> Result<Vec<(OsString, Vec<u8>)>, ModelError> {
        let dir = self.text_dir();
        let is_there = |name: &&&str| match is_gguf(dir) {
            true => name.starts_with("tokenizer"),
            false => self.has_other_text() && disk::is_file(&dir.join(name)),
        };
        let file = |name: &&str| Ok((name.into(), self.text_file(name)?.into_bytes()));
        TEXT_FILES.iter().filter(is_there).map(file).collect()
    }

    /// Returns every file that holds no weights, without the files of a tokenizer that is not used.
    ///
    /// A link in an untrusted directory may lead to a private file, which would be published with the model. So links are
    /// followed only within the directory, or to the blobs of the Hugging Face cache that it is a snapshot of.
    pub(crate) fn beside_the_weights(&self) -> Result<Vec<PathBuf>, ModelError> {
        let unreadable = |e: std::io::Error| ModelError::unreadable(self.dir(), e);
        let home = disk::canonical(self.dir()).map_err(unreadable)?;
        let is_snapshot = home.parent().is_some_and(|p| p.ends_with("snapshots"));
        let blobs = is_snapshot.then(|| disk::canonical(&home.join("../../blobs")));
        let within = [Some(home), blobs.and_then(Result::ok)];
        let (mut paths, mut total) = (Vec::new(), 0);
        for path in disk::entries(self.dir()).map_err(unreadable)? {
            let kind = path.extension().and_then(|kind| kind.to_str());
            // If there is a single weight file too, the index was not read.
            let is_unused_index = path.ends_with(INDEX) && !self.weights.is_sharded();
            let is_weights = kind.is_some_and(|kind| WEIGHTS.contains(&kind));
            let is_text = TEXT_FILES.iter().any(|name| path.ends_with(name));
            let is_unused = is_unused_index || (is_text && self.has_other_text());
            if !disk::is_file(&path) || is_weights || is_unused {
                continue;
            }
            let wrong = |problem: String| ModelError::file(&path, problem);
            let target = disk::canonical(&path).map_err(|e| wrong(e.to_string()))?;
            if !within.iter().flatten().any(|dir| target.starts_with(dir)) {
                let to = target.display();
                return Err(wrong(format!(
                    "leads out of the directory, to {to}; replace the link by the file, or remove it"
                )));
            }
            let size = disk::length(&path).map_err(|e| wrong(e.to_string()))?;
            total += size;
            let limits = [
                (size, MOST_BESIDE, "larger"),
                (total, MAX_TOTAL, "with the files before it, larger"),
            ];
            let exceeded = limits.into_iter().find(|(bytes, most, _)| bytes > most);
            if let Some((_, most, what)) = exceeded {
                return Err(wrong(format!(
                    "{what} than {} MiB; files beside the weights are copied with them: move it elsewhere",
                    most >> 20
                )));
            }
            paths.push(path);
        }
        Ok(paths)
    }
}

/// The files of a tokenizer and a chat template.
const TEXT_FILES: [&str; 7] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
];

/// The extensions of weight files.
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

const MAX_TOTAL: u64 = 1 << 30;
