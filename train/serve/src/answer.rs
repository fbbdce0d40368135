//! Replies as OpenAI's API has them, whole or in chunks.

use serde_json::{Map, Value, json};

use super::reply::{Piece, Token};
use super::worker::Finish;

/// Which of the two forms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    Chat,
    Completion,
}

/// What is the same in all that answers one request.
#[derive(Debug, Clone)]
pub struct Answer {
    pub form: Form,
    pub id: String,
    pub created: u64,
    pub model: String,
    /// how many of the likeliest tokens were asked for; none: no log-probs
    pub tell: Option<usize>,
    pub prompt_tokens: usize,
    /// whether each chunk speaks of the usage, and one has it
    pub include_usage: bool,
}

/// One reply, whole.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    pub piece: Piece,
    pub finish: Option<Finish>,
    pub tokens: usize,
}

impl Answer {
    /// All replies in one.
    pub fn whole(&self, choices: &[Choice]) -> Value {
        let tokens = choices.iter().map(|choice| choice.tokens).sum();
        let choices = choices.iter().enumerate();
        let choices: Vec<Value> = choices.map(|(i, choice)| self.choice(i, choice)).collect();
        let object = match self.form {
            Form::Chat => "chat.completion",
            Form::Completion => "text_completion",
        };
        let mut answer = self.frame(object, choices);
        answer["usage"] = self.usage(tokens);
        answer
    }

    fn choice(&self, index: usize, choice: &Choice) -> Value {
        let Choice { piece, finish, .. } = choice;
        let text = &piece.text;
        let (name, value) = match self.form {
            Form::Chat => (
                "message",
                json!({"role": "assistant", "content": text, "refusal": null}),
            ),
            Form::Completion => ("text", json!(text)),
        };
        let mut choice = json!({"index": index, name: value});
        choice["logprobs"] = self.log_probs(&piece.tokens);
        choice["finish_reason"] = reason(*finish);
        choice
    }

    /// What comes before the first piece of a reply, if anything does.
    pub fn opening(&self, index: usize) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": "", "refusal": null});
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
        (self.form == Form::Chat).then(|| self.chunk(vec![choice]))
    }

    /// Some of a reply, or with a reason its end.
    pub fn piece(&self, index: usize, piece: &Piece, finish: Option<Finish>) -> Value {
        let (name, value) = match self.form {
            Form::Chat if piece.text.is_empty() && finish.is_some() => ("delta", json!({})),
            Form::Chat => ("delta", json!({"content": piece.text})),
            Form::Completion => ("text", json!(piece.text)),
        };
        let mut choice = json!({"index": index, name: value});
        choice["logprobs"] = match piece.tokens.is_empty() {
            true => Value::Null,
            false => self.log_probs(&piece.tokens),
        };
        choice["finish_reason"] = reason(finish);
        self.chunk(vec![choice])
    }

    /// What comes after the last piece of all, if it was asked for.
    pub fn closing(&self, tokens: usize) -> Option<Value> {
        let mut chunk = self.chunk(Vec::new());
        chunk["usage"] = self.usage(tokens);
        self.include_usage.then_some(chunk)
    }

    fn chunk(&self, choices: Vec<Value>) -> Value {
        let object = match self.form {
            Form::Chat => "chat.completion.chunk",
            Form::Completion => "text_completion",
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

    fn log_probs(&self, tokens: &[Token]) -> Value {
        let Some(tell) = self.tell else {
            return Value::Null;
        };
        if self.form == Form::Chat {
            let token = |token: &Token| {
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
        let likeliest = |token: &Token| {
            let mut map = Map::new();
            // Tokens that are written alike share an entry, which is the likelier's.
            let own = token
                .log_prob
                .map(|log_prob| (token.text.clone(), log_prob));
            for (text, log_prob) in token.likeliest.iter().cloned().chain(own) {
                map.entry(text).or_insert(json!(number(log_prob)));
            }
            match token.log_prob {
                Some(_) if tell > 0 => Value::Object(map),
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

/// A token with its bytes, which are not known of one that is a part of a letter.
fn scored(text: &str, log_prob: Option<f32>) -> Value {
    let bytes = (!text.contains('\u{fffd}')).then_some(text.as_bytes());
    json!({"token": text, "logprob": log_prob.map(number), "bytes": bytes})
}

/// With the digits that it has: widened as it is, it would be written with eight more that say nothing.
fn number(x: f32) -> f64 {
    x.to_string().parse().expect("digits")
}

fn reason(finish: Option<Finish>) -> Value {
    match finish {
        None => Value::Null,
        Some(Finish::Stop) => json!("stop"),
        Some(Finish::Length) => json!("length"),
    }
}
