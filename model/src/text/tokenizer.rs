//! The tokenizer of a model.

use std::path::PathBuf;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::sandbox::Runner;
use super::text_server::TextRequest;
use crate::files::gguf::file_of_model;
use crate::{ModelConfig, ModelError, TextFiles};

/// A tokenizer and the ids that end a reply. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    runner: Arc<Runner>,
    path: PathBuf,
    stop_ids: Vec<u32>,
}

impl Tokenizer {
    pub(super) fn of(files: &TextFiles, config: &ModelConfig) -> Result<Tokenizer, ModelError> {
        let (vocab, eos) = (config.vocab, config.eos.clone());
        let path = file_of_model(&files.dir, "tokenizer.json");
        let request = TextRequest::Tokenizer { vocab, eos };
        Ok(Tokenizer {
            stop_ids: files.runner.ask(&path, request)?,
            runner: files.runner.clone(),
            path,
        })
    }

    fn ask<T: DeserializeOwned>(&self, request: TextRequest) -> Result<T, ModelError> {
        self.runner.ask(&self.path, request)
    }

    /// Returns the token ids of a text. Special tokens in the text are recognised; none are added.
    ///
    /// # Errors
    /// The tokenizer cannot encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        self.encode_with(text, false)
    }

    /// Returns the token ids of a text with the tokens that the tokenizer adds by itself, such as the first token of
    /// Llama 3: `tokenizer(text)` in transformers. A rendered conversation has them already.
    ///
    /// # Errors
    /// The tokenizer cannot encode the text.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<u32>, ModelError> {
        self.encode_with(text, true)
    }

    fn encode_with(&self, text: &str, add_special: bool) -> Result<Vec<u32>, ModelError> {
        let text = text.to_owned();
        self.ask(TextRequest::Encode { text, add_special })
    }

    /// Returns the text of token ids without special tokens.
    ///
    /// # Errors
    /// The tokenizer cannot decode the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String, ModelError> {
        self.ask(TextRequest::Decode(ids.to_vec()))
    }

    /// The ids that end a reply: those of `config.json`, `generation_config.json` and `tokenizer_config.json`, sorted.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Returns the tokenizer's spelling of a token, if there is a token of this id.
    ///
    /// # Errors
    /// The sandbox ended.
    pub fn token(&self, id: u32) -> Result<Option<String>, ModelError> {
        self.ask(TextRequest::Token(id))
    }

    /// Returns the text of one token within a text; of a special token, its name.
    ///
    /// # Errors
    /// The tokenizer cannot decode the id.
    pub fn text_of(&self, id: u32) -> Result<String, ModelError> {
        let (text, name) = (self.decode(&[id])?, self.token(id)?.unwrap_or_default());
        Ok(match name.starts_with('▁') && !text.starts_with(' ') {
            // SentencePiece drops the space of the first token of a text.
            true => format!(" {text}"),
            false if text.is_empty() => name,
            false => text,
        })
    }
}
