//! A chat completion, as far as a player reads it.

use serde::{Deserialize, Serialize};

/// What the model said, and what it cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ChatReply {
    pub(crate) text: String,
    /// The limit of tokens ended it.
    pub(crate) cut: bool,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    /// The server did not say how many tokens; these are a guess.
    pub(crate) estimated: bool,
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<CompletionChoice>,
    #[serde(default)]
    usage: Option<CompletionUsage>,
}

#[derive(Deserialize)]
struct CompletionChoice {
    message: ReplyMessage,
    #[serde(default)]
    finish_reason: Option<String>,
}

/// A model that thinks to the end of its tokens has said nothing: its content is null.
#[derive(Deserialize)]
struct ReplyMessage {
    content: Option<String>,
}

#[derive(Deserialize)]
struct CompletionUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl ChatReply {
    /// Reads what came for this request.
    pub(super) fn read(body: &str, request: &str) -> Result<ChatReply, String> {
        let completion: Completion =
            serde_json::from_str(body).map_err(|error| error.to_string())?;
        let choice = completion.choices.into_iter().next();
        let choice = choice.ok_or("it has no choices")?;
        let text = choice.message.content.unwrap_or_default();
        // Four bytes a token is usual for English.
        let guess = |text: &str| text.len().div_ceil(4) as u64;
        let (prompt_tokens, completion_tokens) = match &completion.usage {
            Some(usage) => (usage.prompt_tokens, usage.completion_tokens),
            None => (guess(request), guess(&text)),
        };
        Ok(ChatReply {
            cut: choice.finish_reason.as_deref() == Some("length"),
            text,
            prompt_tokens,
            completion_tokens,
            estimated: completion.usage.is_none(),
        })
    }
}
