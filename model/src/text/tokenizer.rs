//! The tokenizer of a checkpoint.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::codec::Codec;
use super::process::{Process, Request};
use crate::{Config, ModelError};

/// A checkpoint's tokenizer and the ids that end its replies.
#[derive(Clone)]
pub struct Tokenizer {
    place: Place,
    stop_ids: Vec<u32>,
}

/// Where it runs.
#[derive(Clone)]
enum Place {
    /// On the thread that asks.
    Here(Arc<Codec>),
    /// In a process that may come to any end; it reads this file.
    Apart(Arc<Process>, PathBuf),
}

/// What a process that reads a tokenizer is told about.
const SUBJECT: &str = "the tokenizer";

impl Tokenizer {
    /// Reads `tokenizer.json` and the end-of-text token of `tokenizer_config.json`, and runs it in this process. Texts of
    /// more than 4 MiB are refused, but what its normalisers make of a text is not bounded;
    /// [`TextFiles::guarded`](crate::TextFiles::guarded) bounds it.
    ///
    /// # Errors
    /// A file that cannot be read, a tokenizer that does not belong to the model (one with ids that the model's
    /// vocabulary does not have), or one that encodes by chance.
    pub fn load(dir: &Path, config: &Config) -> Result<Tokenizer, ModelError> {
        let codec = Codec::load(dir, config.vocab, &config.eos)?;
        Ok(Tokenizer {
            stop_ids: codec.stop_ids().to_vec(),
            place: Place::Here(Arc::new(codec)),
        })
    }

    /// The same in the process of this directory.
    pub(crate) fn apart(process: &Arc<Process>, config: &Config) -> Result<Tokenizer, ModelError> {
        let request = Request::Tokenizer {
            vocab: config.vocab,
            eos: config.eos.clone(),
        };
        let path = process.dir().join("tokenizer.json");
        Ok(Tokenizer {
            stop_ids: process.ask(SUBJECT, Some(&path), &request)?,
            place: Place::Apart(process.clone(), path),
        })
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

    fn encoded(&self, text: &str, around: bool) -> Result<Vec<u32>, ModelError> {
        match &self.place {
            Place::Here(codec) => codec.encode(text, around),
            Place::Apart(process, path) => {
                let text = text.to_owned();
                process.ask(SUBJECT, Some(path), &Request::Encode { text, around })
            }
        }
    }

    /// The text of token ids, special tokens left out.
    ///
    /// # Errors
    /// If the tokenizer has no text for them.
    pub fn decode(&self, ids: &[u32]) -> Result<String, ModelError> {
        match &self.place {
            Place::Here(codec) => codec.decode(ids),
            Place::Apart(process, path) => {
                process.ask(SUBJECT, Some(path), &Request::Decode(ids.to_vec()))
            }
        }
    }

    /// The ids that end a reply: those of `config.json`, `generation_config.json` and `tokenizer_config.json`, sorted.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// The id of a token given as text, if there is such a token.
    ///
    /// # Errors
    /// If the tokenizer has come to a bad end.
    pub fn id(&self, token: &str) -> Result<Option<u32>, ModelError> {
        match &self.place {
            Place::Here(codec) => Ok(codec.id(token)),
            Place::Apart(process, path) => {
                process.ask(SUBJECT, Some(path), &Request::Id(token.to_owned()))
            }
        }
    }

    /// How the tokenizer writes a token, if there is such a token.
    ///
    /// # Errors
    /// If the tokenizer has come to a bad end.
    pub fn token(&self, id: u32) -> Result<Option<String>, ModelError> {
        match &self.place {
            Place::Here(codec) => Ok(codec.token(id)),
            Place::Apart(process, path) => process.ask(SUBJECT, Some(path), &Request::Token(id)),
        }
    }
}
