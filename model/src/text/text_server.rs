//! Requests about the texts of a model directory, and the server that replies to them, in this process or in a sandbox.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::caught_panic::catch_panic;
use super::chat_program::ChatProgram;
use super::codec::Codec;
use crate::ModelError;

/// A request, with the reply in its description.
#[derive(Serialize, Deserialize)]
pub(super) enum TextRequest {
    /// Reads the tokenizer of a model with this vocabulary and these stop ids: all stop ids.
    Tokenizer { vocab: usize, eos: Vec<u32> },
    /// Reads the template: the name of its file and the special tokens.
    Template,
    /// Renders the template: the text.
    Render(Map<String, Value>),
    /// Encodes a text, with the tokens that the tokenizer adds or without: the ids.
    Encode { text: String, add_special: bool },
    /// Decodes ids: the text.
    Decode(Vec<u32>),
    /// Looks up an id: the token, if there is one.
    Token(u32),
}

impl TextRequest {
    /// What an error of the process is about.
    pub(super) fn subject(&self) -> &'static str {
        match self {
            TextRequest::Template | TextRequest::Render(_) => "chat template: it",
            _ => "the tokenizer",
        }
    }
}

/// The reply, or the path and the problem of a [`ModelError::File`].
pub(super) type TextReply<T> = Result<T, (String, String)>;

/// The tokenizer and the template of a directory, once they are read.
#[derive(Debug)]
pub(super) struct TextServer {
    dir: PathBuf,
    codec: Option<Codec>,
    template: Option<ChatProgram>,
}

impl TextServer {
    pub(super) fn new(dir: PathBuf) -> TextServer {
        TextServer {
            dir,
            codec: None,
            template: None,
        }
    }

    pub(super) fn reply(&mut self, request: &[u8]) -> TextReply<Value> {
        let dir = self.dir.clone();
        let done = match serde_json::from_slice(request) {
            Ok(request) => catch_panic(|| self.work(request)).unwrap_or_else(|| {
                let problem = "its tokenizer or template makes the library that reads it panic";
                Err(ModelError::file(&dir, problem))
            }),
            Err(e) => Err(ModelError::file(&dir, format!("unknown request: {e}"))),
        };
        done.map_err(|error| {
            let (path, problem) = match error {
                ModelError::File { path, problem } => (path, problem),
                other => (dir, other.to_string()),
            };
            (path.to_string_lossy().into_owned(), problem)
        })
    }

    fn codec(&self) -> &Codec {
        self.codec.as_ref().expect("requested before")
    }

    pub(super) fn work(&mut self, request: TextRequest) -> Result<Value, ModelError> {
        Ok(match request {
            TextRequest::Tokenizer { vocab, eos } => {
                let (codec, stop_ids) = Codec::load(&self.dir, vocab, eos)?;
                self.codec = Some(codec);
                json!(stop_ids)
            }
            TextRequest::Template => {
                let template = self.template.insert(ChatProgram::load(&self.dir)?);
                let file = template.path.file_name().map(|name| name.to_string_lossy());
                json!((file, &template.special_tokens))
            }
            TextRequest::Render(variables) => {
                let template = self.template.as_ref().expect("requested before");
                json!(template.render(&variables)?)
            }
            TextRequest::Encode { text, add_special } => {
                json!(self.codec().encode(&text, add_special)?)
            }
            TextRequest::Decode(ids) => json!(self.codec().decode(&ids)?),
            TextRequest::Token(id) => json!(self.codec().inner.id_to_token(id)),
        })
    }
}
