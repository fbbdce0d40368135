//! Text to token ids and back, as `tokenizer.json` says, by the tokenizers library.

use std::path::Path;

use serde_json::Value;

use super::guard::guarded;
use crate::ModelError;
use crate::files::disk;
use crate::files::fields::read_object;

/// Published tokenizers have up to 35 MB.
const LARGEST: u64 = 256 << 20;

/// Bytes of a text: a million tokens, the longest context of published models, are about four megabytes. The library
/// takes more than a hundred bytes of memory for each.
pub(crate) const LONGEST_TEXT: usize = 4 << 20;

/// A checkpoint's tokenizer and the ids that end its replies.
pub(crate) struct Codec {
    inner: tokenizers::Tokenizer,
    path: std::path::PathBuf,
    stop_ids: Vec<u32>,
}

impl Codec {
    /// For a model with so many tokens and these ends.
    pub(crate) fn load(dir: &Path, vocab: usize, eos: &[u32]) -> Result<Codec, ModelError> {
        let path = dir.join("tokenizer.json");
        let text = disk::read_text(&path, LARGEST)?;
        let wrong =
            |e: &dyn std::fmt::Display| ModelError::file(&path, format!("not a tokenizer: {e}"));
        // The library panics at some of what is no JSON, such as a file that is cut off.
        let read: Randomness = serde_json::from_str(&text).map_err(|e| wrong(&e))?;
        if let Some(dropout) = read
            .model
            .and_then(|model| model.dropout)
            .filter(|p| *p != 0.0)
        {
            let problem = format!(
                "{dropout} is not supported, only null: one text must have the same tokens each time"
            );
            return Err(ModelError::field(&path, "model.dropout", problem));
        }
        let mut inner = told(&path, || {
            tokenizers::Tokenizer::from_bytes(text.as_bytes()).map_err(|e| wrong(&e))
        })?;
        // What a training script wanted of its batches is no property of the text.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|e| ModelError::file(&path, e))?;
        let mut tokenizer = Codec {
            inner,
            path,
            stop_ids: eos.to_owned(),
        };
        tokenizer.refuse_foreign(vocab)?;
        tokenizer.refuse_without_ends(dir, vocab, eos)?;
        if let Some(id) = tokenizer.declared_end(dir)? {
            tokenizer.stop_ids.push(id);
        }
        tokenizer.stop_ids.sort_unstable();
        tokenizer.stop_ids.dedup();
        Ok(tokenizer)
    }

    fn refuse_foreign(&self, vocab: usize) -> Result<(), ModelError> {
        let vocabulary = self.inner.get_vocab(true);
        match vocabulary.iter().max_by_key(|(_, id)| **id) {
            None => Err(ModelError::file(&self.path, "the vocabulary is empty")),
            Some((token, &id)) if id as usize >= vocab => {
                let wanted = format!("the model's vocab_size is {vocab}");
                let cure = "is it the tokenizer of another model?";
                Err(ModelError::file(
                    &self.path,
                    format!("token {token:?} has id {id}, but {wanted}; {cure}"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// The model's own ends must be tokens. Beyond its vocabulary they are a remnant of a larger model, and never come.
    fn refuse_without_ends(&self, dir: &Path, vocab: usize, eos: &[u32]) -> Result<(), ModelError> {
        let unknown = |id: &&u32| {
            let possible = (**id as usize) < vocab;
            possible && self.inner.id_to_token(**id).is_none()
        };
        match eos.iter().find(unknown) {
            None => Ok(()),
            Some(id) => {
                let problem = format!(
                    "{id} is no token of tokenizer.json; is it the tokenizer of another model?"
                );
                Err(ModelError::field(
                    &dir.join("config.json"),
                    "eos_token_id",
                    problem,
                ))
            }
        }
    }

    /// The id of `eos_token` in `tokenizer_config.json`.
    fn declared_end(&self, dir: &Path) -> Result<Option<u32>, ModelError> {
        let path = dir.join("tokenizer_config.json");
        if !disk::exists(&path) {
            return Ok(None);
        }
        let config = read_object(&path)?;
        let declared = config.get("eos_token").unwrap_or(&Value::Null);
        let Some(token) = declared.as_str().or_else(|| declared["content"].as_str()) else {
            return Ok(None);
        };
        match self.id(token) {
            Some(id) => Ok(Some(id)),
            None => Err(ModelError::field(
                &path,
                "eos_token",
                format!("{token:?} is not in tokenizer.json"),
            )),
        }
    }

    /// Token ids of a text; with those that the tokenizer puts around a text by itself, or without.
    pub(crate) fn encode(&self, text: &str, around: bool) -> Result<Vec<u32>, ModelError> {
        if text.len() > LONGEST_TEXT {
            let (found, most) = (text.len(), LONGEST_TEXT >> 20);
            let problem = format!("cannot encode a text of {found} bytes; at most {most} MiB");
            return Err(ModelError::file(&self.path, problem));
        }
        told(&self.path, || match self.inner.encode_fast(text, around) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(e) => {
                let problem = format!("cannot encode a text: {e}");
                Err(ModelError::file(&self.path, problem))
            }
        })
    }

    /// The text of token ids, special tokens left out.
    pub(crate) fn decode(&self, ids: &[u32]) -> Result<String, ModelError> {
        told(&self.path, || {
            let decoded = self.inner.decode(ids, true);
            decoded.map_err(|e| {
                ModelError::file(&self.path, format!("cannot decode {} ids: {e}", ids.len()))
            })
        })
    }

    /// The ids that end a reply: those of `config.json`, `generation_config.json` and `tokenizer_config.json`, sorted.
    pub(crate) fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// The id of a token given as text.
    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// How the tokenizer writes a token.
    pub(crate) fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }
}

/// What a tokenizer does by chance: a BPE with dropout leaves out merges, which was of use when a model was trained.
#[derive(serde::Deserialize)]
struct Randomness {
    #[serde(default)]
    model: Option<RandomModel>,
}

#[derive(serde::Deserialize)]
struct RandomModel {
    #[serde(default)]
    dropout: Option<f64>,
}

/// The library panics at some tokenizers that it reads, or at the first text. That is the file's fault, and said so.
fn told<T>(path: &Path, work: impl FnOnce() -> Result<T, ModelError>) -> Result<T, ModelError> {
    guarded(work).unwrap_or_else(|| {
        let problem = "the tokenizers library breaks down over it; is the file damaged?";
        Err(ModelError::file(path, problem))
    })
}
