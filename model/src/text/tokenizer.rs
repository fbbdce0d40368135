//! The tokenizer of a model.

use std::path::Path;
use std::sync::Arc;

use super::codec::Codec;
use super::sandbox::{Runner, SandboxProcess, SandboxRequest};
use crate::{ModelConfig, ModelError};

/// A tokenizer and the ids that end a reply. Cheap to clone.
#[derive(Clone)]
pub struct Tokenizer {
    runner: Arc<Runner<Codec>>,
    stop_ids: Vec<u32>,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and the end-of-text token of `tokenizer_config.json`, and runs the tokenizer in this process.
    /// Texts of more than 4 MiB are refused, but the memory that a normaliser takes is not limited:
    /// [`TextFiles::untrusted`](crate::TextFiles::untrusted) runs tokenizers in a sandbox.
    ///
    /// # Errors
    /// The file cannot be read, the tokenizer belongs to another model (it has ids outside of the model's vocabulary), or it
    /// encodes at random.
    pub fn load(dir: &Path, config: &ModelConfig) -> Result<Tokenizer, ModelError> {
        let (codec, stop_ids) = Codec::load(dir, config.vocab, config.eos.clone())?;
        let runner = Arc::new(Runner::Local(codec));
        Ok(Tokenizer { runner, stop_ids })
    }

    pub(super) fn sandboxed(
        process: &Arc<SandboxProcess>,
        config: &ModelConfig,
    ) -> Result<Tokenizer, ModelError> {
        let request = SandboxRequest::Tokenizer {
            vocab: config.vocab,
            eos: config.eos.clone(),
        };
        let path = process.dir().join("tokenizer.json");
        let stop_ids = process.ask(&path, &request)?;
        let runner = Arc::new(Runner::Sandboxed(process.clone(), path));
        Ok(Tokenizer { runner, stop_ids })
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
        let request = || SandboxRequest::Encode {
            text: text.to_owned(),
            add_special,
        };
        let encode = |codec: &Codec| codec.encode(text, add_special);
        self.runner.run(encode, request)
    }

    /// Returns the text of token ids without special tokens.
    ///
    /// # Errors
    /// The tokenizer cannot decode the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String, ModelError> {
        let request = || SandboxRequest::Decode(ids.to_vec());
        self.runner.run(|codec| codec.decode(ids), request)
    }

    /// The ids that end a reply: those of `config.json`, `generation_config.json` and `tokenizer_config.json`, sorted.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Returns the id of a token, if there is such a token.
    ///
    /// # Errors
    /// The sandbox ended.
    pub fn id(&self, token: &str) -> Result<Option<u32>, ModelError> {
        let request = || SandboxRequest::Id(token.to_owned());
        let id = |codec: &Codec| Ok(codec.inner.token_to_id(token));
        self.runner.run(id, request)
    }

    /// Returns the tokenizer's spelling of a token, if there is a token of this id.
    ///
    /// # Errors
    /// The sandbox ended.
    pub fn token(&self, id: u32) -> Result<Option<String>, ModelError> {
        let token = |codec: &Codec| Ok(codec.inner.id_to_token(id));
        self.runner.run(token, || SandboxRequest::Token(id))
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
