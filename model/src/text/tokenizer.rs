//! Text to token ids and back, as `tokenizer.json` says.

use std::path::Path;

use serde_json::Value;

use super::guard::guarded;
use crate::files::disk;
use crate::files::fields::read_object;
use crate::{Config, ModelError};

/// Published tokenizers have up to 35 MB.
const LARGEST: u64 = 256 << 20;

/// A checkpoint's tokenizer and the ids that end its replies.
#[derive(Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: std::path::PathBuf,
    stop_ids: Vec<u32>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and the end-of-text token of `tokenizer_config.json`.
    ///
    /// # Errors
    /// A file that cannot be read, or a tokenizer that does not belong to the model: one with ids that the model's
    /// vocabulary does not have.
    pub fn load(dir: &Path, config: &Config) -> Result<Tokenizer, ModelError> {
        let path = dir.join("tokenizer.json");
        let text = disk::read_text(&path, LARGEST)?;
        let wrong =
            |e: &dyn std::fmt::Display| ModelError::file(&path, format!("not a tokenizer: {e}"));
        // The library panics at some of what is no JSON, such as a file that is cut off.
        serde_json::from_str::<serde::de::IgnoredAny>(&text).map_err(|e| wrong(&e))?;
        let mut inner = told(&path, || {
            tokenizers::Tokenizer::from_bytes(text.as_bytes()).map_err(|e| wrong(&e))
        })?;
        // What a training script wanted of its batches is no property of the text.
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|e| ModelError::file(&path, e))?;
        let mut tokenizer = Tokenizer {
            inner,
            path,
            stop_ids: config.eos.clone(),
        };
        tokenizer.refuse_foreign(config)?;
        tokenizer.refuse_without_ends(dir, config)?;
        if let Some(id) = tokenizer.declared_end(dir)? {
            tokenizer.stop_ids.push(id);
        }
        tokenizer.stop_ids.sort_unstable();
        tokenizer.stop_ids.dedup();
        Ok(tokenizer)
    }

    fn refuse_foreign(&self, config: &Config) -> Result<(), ModelError> {
        let vocabulary = self.inner.get_vocab(true);
        match vocabulary.iter().max_by_key(|(_, id)| **id) {
            None => Err(ModelError::file(&self.path, "the vocabulary is empty")),
            Some((token, &id)) if id as usize >= config.vocab => {
                let wanted = format!("the model's vocab_size is {}", config.vocab);
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
    fn refuse_without_ends(&self, dir: &Path, config: &Config) -> Result<(), ModelError> {
        let unknown = |id: &&u32| {
            let possible = (**id as usize) < config.vocab;
            possible && self.inner.id_to_token(**id).is_none()
        };
        match config.eos.iter().find(unknown) {
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

    /// Token ids of a text. Special tokens written in it are recognised; none are added.
    ///
    /// # Errors
    /// If the tokenizer cannot represent the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        self.encoded(text, false)
    }

    /// The same with the tokens that the tokenizer puts around a text by itself, such as a first token of Llama 3: what
    /// `tokenizer(text)` gives in transformers. A rendered conversation has them already.
    ///
    /// # Errors
    /// If the tokenizer cannot represent the text.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        self.encoded(text, true)
    }

    fn encoded(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, ModelError> {
        told(&self.path, || {
            match self.inner.encode_fast(text, add_special_tokens) {
                Ok(encoding) => Ok(encoding.get_ids().to_vec()),
                Err(e) => {
                    let problem = format!("cannot encode a text: {e}");
                    Err(ModelError::file(&self.path, problem))
                }
            }
        })
    }

    /// The text of token ids, special tokens left out.
    ///
    /// # Errors
    /// If the tokenizer has no text for them.
    pub fn decode(&self, ids: &[u32]) -> Result<String, ModelError> {
        told(&self.path, || {
            let decoded = self.inner.decode(ids, true);
            decoded.map_err(|e| {
                ModelError::file(&self.path, format!("cannot decode {} ids: {e}", ids.len()))
            })
        })
    }

    /// The ids that end a reply: those of `config.json`, `generation_config.json` and `tokenizer_config.json`, sorted.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// The id of a token given as text.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// How the tokenizer writes a token.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Tokens that the tokenizer knows; a model may have room for more.
    pub fn vocab(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

/// The library panics at some tokenizers that it reads, or at the first text. That is the file's fault, and said so.
fn told<T>(path: &Path, work: impl FnOnce() -> Result<T, ModelError>) -> Result<T, ModelError> {
    guarded(work).unwrap_or_else(|| {
        let problem = "the tokenizers library breaks down over it; is the file damaged?";
        Err(ModelError::file(path, problem))
    })
}
