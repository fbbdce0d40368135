//! From what a request says to token ids, within what the model was made for.

use lapwing_model::{ChatTemplate, Message, Tokenizer};

use super::error::ApiError;
use super::request::{Asked, Input, Prompt};

/// Bytes of text for each token of the context: ten times what a token has on average. A longer text is not even counted,
/// so that nobody keeps the tokenizer busy with what is refused in the end.
const BYTES: usize = 64;

/// What turns text into tokens, and its limits.
pub struct Texts {
    /// Text to token ids and back.
    pub tokenizer: Tokenizer,
    /// none: the model has none, and cannot chat
    pub template: Option<ChatTemplate>,
    /// tokens that the model knows
    pub vocab: usize,
    /// tokens of prompt and reply together
    pub context: usize,
}

/// A prompt in tokens, and how many may follow it.
pub struct Ready {
    pub ids: Vec<u32>,
    pub most: usize,
}

impl Texts {
    /// The prompts of a request, each checked.
    pub fn ready(&self, asked: &Asked) -> Result<Vec<Ready>, ApiError> {
        let prompts = match &asked.input {
            Input::Chat(messages) => vec![self.chat(messages)?],
            Input::Prompts(prompts) => {
                let ids = prompts.iter().map(|prompt| self.prompt(prompt));
                ids.collect::<Result<_, _>>()?
            }
        };
        let field = match &asked.input {
            Input::Chat(_) => "messages",
            Input::Prompts(_) => "prompt",
        };
        let ready = |ids: Vec<u32>| {
            let most = self.room(field, &ids, asked.most)?;
            Ok(Ready { ids, most })
        };
        prompts.into_iter().map(ready).collect()
    }

    fn chat(&self, messages: &[Message]) -> Result<Vec<u32>, ApiError> {
        let Some(template) = &self.template else {
            let problem = "this model has no chat template; use /v1/completions";
            return Err(ApiError::field("messages", "no_chat_template", problem));
        };
        let text = template
            .render(messages, true)
            .map_err(|e| ApiError::text(&e))?;
        self.check_length("messages", &text)?;
        self.tokenizer.encode(&text).map_err(|e| ApiError::text(&e))
    }

    fn prompt(&self, prompt: &Prompt) -> Result<Vec<u32>, ApiError> {
        let ids = match prompt {
            Prompt::Text(text) => {
                self.check_length("prompt", text)?;
                let ids = self.tokenizer.encode_plain(text);
                ids.map_err(|e| ApiError::text(&e))?
            }
            Prompt::Ids(ids) => ids.clone(),
        };
        match ids.iter().find(|&&id| id as usize >= self.vocab) {
            None => Ok(ids),
            Some(id) => {
                let vocab = self.vocab;
                let problem =
                    format!("prompt: token {id} is beyond the model's vocabulary of {vocab}");
                Err(ApiError::field("prompt", "invalid_value", problem))
            }
        }
    }

    fn check_length(&self, field: &str, text: &str) -> Result<(), ApiError> {
        let (context, bytes) = (self.context, text.len());
        if bytes <= context.saturating_mul(BYTES) {
            return Ok(());
        }
        let problem = format!(
            "this model's longest context is {context} tokens, and the text has {bytes} bytes"
        );
        Err(ApiError::field(field, "context_length_exceeded", problem))
    }

    /// Tokens that may follow.
    fn room(&self, field: &str, ids: &[u32], most: Option<usize>) -> Result<usize, ApiError> {
        let (context, prompt) = (self.context, ids.len());
        if prompt == 0 {
            let problem = format!("{field}: there is no token in it");
            return Err(ApiError::field(field, "invalid_value", problem));
        }
        let fits = match most {
            Some(most) => prompt.saturating_add(most) <= context,
            None => prompt < context,
        };
        if fits {
            return Ok(most.unwrap_or(context - prompt));
        }
        let wanted = match most {
            Some(most) => format!(" and {most} of the reply"),
            None => String::new(),
        };
        let problem = format!(
            "this model's longest context is {context} tokens, and you ask for {prompt} tokens of the prompt{wanted}; \
             shorten one of them"
        );
        Err(ApiError::field(field, "context_length_exceeded", problem))
    }
}
