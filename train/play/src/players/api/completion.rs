//! The part of a chat completion that a player reads.

use serde::{Deserialize, Serialize};

/// The model's reply and its cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct ChatReply {
    pub(crate) text: String,
    /// Whether the token limit ended the reply.
    pub(crate) cut: bool,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
    /// Whether the token counts are estimates, because the server sent none.
    pub(crate) estimated: bool,
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<CompletionChoice>,
    usage: Option<CompletionUsage>,
}

#[derive(Deserialize)]
struct CompletionChoice {
    message: ReplyMessage,
    finish_reason: Option<String>,
}

/// A model that spends all its tokens on reasoning has no reply: its content is null.
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
    /// Parses the answer to this request.
    ///
    /// # Errors
    /// A description of the problem.
    pub(super) fn read(body: &str, request: &str) -> Result<ChatReply, String> {
        let completion: Completion =
            serde_json::from_str(body).map_err(|error| error.to_string())?;
        let choice = completion.choices.into_iter().next();
        let choice = choice.ok_or("it has no choices")?;
        let text = choice.message.content.unwrap_or_default();
        // English has about four bytes per token.
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
