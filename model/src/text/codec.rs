//! A tokenizer that runs in this process, by the tokenizers library.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::caught_panic::catch_panic;
use super::gguf_text;
use crate::ModelError;
use crate::files::disk;
use crate::files::fields::read_object;
use crate::files::gguf::{file_of_model, is_gguf};

/// Longest text in bytes: a million tokens, the longest context of published models, are about four megabytes. The library
/// takes more than a hundred bytes of memory for each.
pub(crate) const MAX_TEXT: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Codec {
    pub(crate) inner: tokenizers::Tokenizer,
    path: PathBuf,
}

impl Codec {
    /// Reads the tokenizer of a directory or a GGUF file, which belongs to a model with this vocabulary and these stop ids, and returns it with all ids that end a reply.
    pub(crate) fn load(
        dir: &Path,
        vocab: usize,
        mut stop_ids: Vec<u32>,
    ) -> Result<(Codec, Vec<u32>), ModelError> {
        let (path, text) = match is_gguf(dir) {
            true => (dir.to_owned(), gguf_text::tokenizer_json(dir)?),
            false => {
                let path = dir.join("tokenizer.json");
                let text = disk::read_text(&path, disk::MOST_BESIDE)?;
                (path, text)
            }
        };
        let invalid =
            |e: &dyn std::fmt::Display| ModelError::file(&path, format!("not a tokenizer: {e}"));
        // Parsed before the library does it, which panics at some invalid JSON, such as a file that is cut off.
        let parsed: DropoutConfig = serde_json::from_str(&text).map_err(|e| invalid(&e))?;
        let dropout = parsed.model.and_then(|model| model.dropout);
        if let Some(dropout) = dropout.filter(|p| *p != 0.0) {
            let problem = format!(
                "{dropout} is not supported, only null: one text must have the same tokens each time"
            );
            return Err(ModelError::field(&path, "model.dropout", problem));
        }
        let mut inner = catch(&path, || {
            tokenizers::Tokenizer::from_bytes(text.as_bytes()).map_err(|e| invalid(&e))
        })?;
        // Settings of a training script's batches.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|e| ModelError::file(&path, e))?;
        let codec = Codec { inner, path };
        codec.check_vocabulary(vocab)?;
        codec.check_stop_ids(dir, vocab, &stop_ids)?;
        stop_ids.extend(codec.declared_stop_id(dir)?);
        stop_ids.sort_unstable();
        stop_ids.dedup();
        Ok((codec, stop_ids))
    }

    fn check_vocabulary(&self, vocab: usize) -> Result<(), ModelError> {
        let vocabulary = self.inner.get_vocab(true);
        match vocabulary.iter().max_by_key(|(_, id)| **id) {
            None => Err(ModelError::file(&self.path, "the vocabulary is empty")),
            Some((token, &id)) if id as usize >= vocab => {
                let problem = format!(
                    "token {token:?} has id {id}, but the model's vocab_size is {vocab}; is it the tokenizer of another model?"
                );
                Err(ModelError::file(&self.path, problem))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the model's stop ids are tokens. Ids beyond its vocabulary are a remnant of a larger model and never
    /// sampled.
    fn check_stop_ids(&self, dir: &Path, vocab: usize, eos: &[u32]) -> Result<(), ModelError> {
        let unknown = |id: &&u32| {
            let possible = (**id as usize) < vocab;
            possible && self.inner.id_to_token(**id).is_none()
        };
        match eos.iter().find(unknown) {
            None => Ok(()),
            Some(id) => {
                let problem = format!(
                    "{id} is not a token of tokenizer.json; is it the tokenizer of another model?"
                );
                let path = file_of_model(dir, "config.json");
                Err(ModelError::field(&path, "eos_token_id", problem))
            }
        }
    }

    /// Returns the id of `eos_token` in `tokenizer_config.json`.
    fn declared_stop_id(&self, dir: &Path) -> Result<Option<u32>, ModelError> {
        let path = dir.join("tokenizer_config.json");
        if !disk::exists(&path) {
            return Ok(None);
        }
        let config = read_object(&path)?;
        let declared = config.get("eos_token").unwrap_or(&Value::Null);
        let Some(token) = declared.as_str().or_else(|| declared["content"].as_str()) else {
            return Ok(None);
        };
        let missing = || {
            let problem = format!("{token:?} is not in tokenizer.json");
            ModelError::field(&path, "eos_token", problem)
        };
        self.inner.token_to_id(token).ok_or_else(missing).map(Some)
    }

    /// See [`Tokenizer::encode`](crate::Tokenizer::encode) and [`Tokenizer::encode_plain`](crate::Tokenizer::encode_plain).
    pub(crate) fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, ModelError> {
        if text.len() > MAX_TEXT {
            let (found, most) = (text.len(), MAX_TEXT >> 20);
            let problem = format!("cannot encode a text of {found} bytes; at most {most} MiB");
            return Err(ModelError::file(&self.path, problem));
        }
        let encoded = catch(&self.path, || {
            let encoded = self.inner.encode_fast(text, add_special);
            encoded.map_err(|e| ModelError::file(&self.path, format!("cannot encode a text: {e}")))
        });
        Ok(encoded?.get_ids().to_vec())
    }

    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String, ModelError> {
        catch(&self.path, || {
            let decoded = self.inner.decode(ids, true);
            decoded.map_err(|e| {
                ModelError::file(&self.path, format!("cannot decode {} ids: {e}", ids.len()))
            })
        })
    }
}

/// The part of `tokenizer.json` that makes a BPE leave out merges at random, as in the training of some models.
#[derive(serde::Deserialize)]
struct DropoutConfig {
    #[serde(default)]
    model: Option<BpeConfig>,
}

#[derive(serde::Deserialize)]
struct BpeConfig {
    #[serde(default)]
    dropout: Option<f64>,
}

/// Turns a panic into an error: the library panics at some damaged tokenizers, when it reads them or at the first text.
fn catch<T>(path: &Path, work: impl FnOnce() -> Result<T, ModelError>) -> Result<T, ModelError> {
    catch_panic(work).unwrap_or_else(|| {
        let problem = "makes the tokenizers library panic; is the file damaged?";
        Err(ModelError::file(path, problem))
    })
}
