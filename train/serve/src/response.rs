//! OpenAI's JSON for replies, complete or in chunks.

use lapwing_model::FinishReason;
use serde_json::{Map, Value, json};

use super::detokenizer::{ReplyPiece, ReplyToken};
use super::model_thread::ReplyPart;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Endpoint {
    Chat,
    Completion,
}

#[derive(Debug, Clone)]
pub(crate) struct ResponseBuilder {
    pub(crate) endpoint: Endpoint,
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    /// Number of most likely tokens beside each token; `None` for no log-probabilities.
    pub(crate) likeliest: Option<usize>,
    pub(crate) prompt_tokens: usize,
    /// Whether chunks have the field `usage`.
    pub(crate) include_usage: bool,
}

impl ResponseBuilder {
    /// Returns the response with all replies, each of a single part.
    pub(crate) fn complete(&self, replies: &[ReplyPart]) -> Value {
        let ends = replies.iter().filter_map(|reply| reply.end);
        let tokens = ends.map(|(_, tokens)| tokens).sum();
        let choices = replies.iter().map(|reply| self.choice(reply)).collect();
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion",
            Endpoint::Completion => "text_completion",
        };
        let mut response = self.frame(object, choices);
        response["usage"] = self.usage(tokens);
        response
    }

    fn choice(&self, reply: &ReplyPart) -> Value {
        let text = &reply.piece.text;
        let (name, value) = match self.endpoint {
            Endpoint::Chat => (
                "message",
                json!({"role": "assistant", "content": text, "refusal": null}),
            ),
            Endpoint::Completion => ("text", json!(text)),
        };
        let log_probs = self.log_probs(&reply.piece.tokens);
        let finish = reason(reply.end.map(|(finish, _)| finish));
        json!({"index": reply.index, name: value, "logprobs": log_probs, "finish_reason": finish})
    }

    /// Returns the chunk before the first piece of a reply, if there is one.
    pub(crate) fn opening(&self, index: usize) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": "", "refusal": null});
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
        (self.endpoint == Endpoint::Chat).then(|| self.chunk(vec![choice]))
    }

    /// Returns a chunk of a reply. The last one has a finish reason.
    pub(crate) fn piece(
        &self,
        index: usize,
        piece: &ReplyPiece,
        finish: Option<FinishReason>,
    ) -> Value {
        let (name, value) = match self.endpoint {
            Endpoint::Chat if piece.text.is_empty() && finish.is_some() => ("delta", json!({})),
            Endpoint::Chat => ("delta", json!({"content": piece.text})),
            Endpoint::Completion => ("text", json!(piece.text)),
        };
        let log_probs = match piece.tokens.is_empty() {
            true => Value::Null,
            false => self.log_probs(&piece.tokens),
        };
        let finish = reason(finish);
        let choice =
            json!({"index": index, name: value, "logprobs": log_probs, "finish_reason": finish});
        self.chunk(vec![choice])
    }

    /// Returns the chunk after the last piece of all replies, if it is requested.
    pub(crate) fn closing(&self, tokens: usize) -> Option<Value> {
        let mut chunk = self.chunk(Vec::new());
        chunk["usage"] = self.usage(tokens);
        self.include_usage.then_some(chunk)
    }

    fn chunk(&self, choices: Vec<Value>) -> Value {
        let object = match self.endpoint {
            Endpoint::Chat => "chat.completion.chunk",
            Endpoint::Completion => "text_completion",
        };
        let mut chunk = self.frame(object, choices);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn frame(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": concat!("lapwing-", env!("CARGO_PKG_VERSION")),
            "choices": choices,
        })
    }

    fn usage(&self, tokens: usize) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": self.prompt_tokens + tokens,
        })
    }

    fn log_probs(&self, tokens: &[ReplyToken]) -> Value {
        let Some(count) = self.likeliest else {
            return Value::Null;
        };
        if self.endpoint == Endpoint::Chat {
            let token = |token: &ReplyToken| {
                let mut entry = scored(&token.text, token.log_prob);
                let likeliest = token.likeliest.iter();
                let likeliest: Vec<Value> =
                    likeliest.map(|(text, p)| scored(text, Some(*p))).collect();
                entry["top_logprobs"] = json!(likeliest);
                entry
            };
            let content: Vec<Value> = tokens.iter().map(token).collect();
            return json!({"content": content, "refusal": null});
        }
        let likeliest = |token: &ReplyToken| {
            let mut map = Map::new();
            // Tokens with the same text share the entry of the likelier one.
            let own = token.log_prob.map(|x| (token.text.clone(), x));
            for (text, log_prob) in token.likeliest.iter().cloned().chain(own) {
                map.entry(text).or_insert(json!(number(log_prob)));
            }
            match token.log_prob {
                Some(_) if count > 0 => Value::Object(map),
                _ => Value::Null,
            }
        };
        json!({
            "tokens": tokens.iter().map(|token| &token.text).collect::<Vec<_>>(),
            "token_logprobs": tokens.iter().map(|token| token.log_prob.map(number)).collect::<Vec<_>>(),
            "top_logprobs": tokens.iter().map(likeliest).collect::<Vec<_>>(),
            "text_offset": tokens.iter().map(|token| token.offset).collect::<Vec<_>>(),
        })
    }
}

/// Returns a token with its bytes, which are unknown for a part of a character.
fn scored(text: &str, log_prob: Option<f32>) -> Value {
    let bytes = (!text.contains('\u{fffd}')).then_some(text.as_bytes());
    json!({"token": text, "logprob": log_prob.map(number), "bytes": bytes})
}

/// Converts the decimal digits of a number: widening it would add eight digits of noise.
fn number(x: f32) -> f64 {
    x.to_string().parse().expect("digits")
}

fn reason(finish: Option<FinishReason>) -> Value {
    match finish {
        None => Value::Null,
        Some(FinishReason::StopToken) => json!("stop"),
        Some(FinishReason::MaxTokens) => json!("length"),
    }
}
