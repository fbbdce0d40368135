//! Turns the input of a request into token ids that fit the model's context.

use lapwing_model::{ChatTemplate, Message, Tokenizer};

use super::error::ApiError;
use super::request::{CompletionRequest, Input, Prompt};

/// Maximum bytes of text for each token of the context, about ten times the average. A longer text is refused before the
/// tokenizer spends time on it.
const MAX_BYTES_PER_TOKEN: usize = 64;

pub(crate) struct PromptEncoder {
    pub(crate) tokenizer: Tokenizer,
    /// Without a template, conversations are refused.
    pub(crate) template: Option<ChatTemplate>,
    /// Number of tokens of the model.
    pub(crate) vocab: usize,
    /// Maximum number of tokens of prompt and reply together
    pub(crate) context: usize,
}

pub(crate) struct EncodedPrompt {
    pub(crate) ids: Vec<u32>,
    pub(crate) max_new_tokens: usize,
}

impl PromptEncoder {
    pub(crate) fn encode(
        &self,
        request: &CompletionRequest,
    ) -> Result<Vec<EncodedPrompt>, ApiError> {
        let (field, prompts) = match &request.input {
            Input::Chat(messages) => ("messages", vec![self.chat(messages)?]),
            Input::Prompts(prompts) => {
                let ids = prompts.iter().map(|prompt| self.prompt(prompt));
                ("prompt", ids.collect::<Result<_, _>>()?)
            }
        };
        let encoded = |ids: Vec<u32>| {
            let max_new_tokens = self.room(field, &ids, request.max_new_tokens)?;
            Ok(EncodedPrompt {
                ids,
                max_new_tokens,
            })
        };
        prompts.into_iter().map(encoded).collect()
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
                let problem = format!("token {id} is outside of the model's vocabulary of {vocab}");
                Err(ApiError::invalid("prompt", problem))
            }
        }
    }

    fn check_length(&self, field: &str, text: &str) -> Result<(), ApiError> {
        let (context, bytes) = (self.context, text.len());
        if bytes <= context.saturating_mul(MAX_BYTES_PER_TOKEN) {
            return Ok(());
        }
        let problem =
            format!("the maximum context is {context} tokens, and the text has {bytes} bytes");
        Err(ApiError::field(field, "context_length_exceeded", problem))
    }

    /// Returns the maximum number of new tokens.
    fn room(&self, field: &str, ids: &[u32], most: Option<usize>) -> Result<usize, ApiError> {
        let (context, prompt) = (self.context, ids.len());
        if prompt == 0 {
            return Err(ApiError::invalid(field, "there is no token in it"));
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
            "the maximum context is {context} tokens, and the request has {prompt} tokens of the prompt{wanted}; shorten \
             one of them"
        );
        Err(ApiError::field(field, "context_length_exceeded", problem))
    }
}
