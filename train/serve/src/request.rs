//! Parsing of requests. Every field is used, ignored as harmless, or refused by name.

use std::sync::Arc;

use lapwing_model::Message;
use serde_json::{Map, Value};

use super::error::{ApiError, shown};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CompletionRequest {
    pub(crate) model: String,
    pub(crate) input: Input,
    /// Number of replies to each prompt.
    pub(crate) n: usize,
    /// `None` for the rest of the context.
    pub(crate) max_new_tokens: Option<usize>,
    pub(crate) temperature: f32,
    pub(crate) top_p: f32,
    pub(crate) top_k: usize,
    pub(crate) seed: Option<u64>,
    pub(crate) stop: Arc<[String]>,
    /// Number of most likely tokens beside each token; `None` for no log-probabilities.
    pub(crate) likeliest: Option<usize>,
    /// Whether the response contains the prompt.
    pub(crate) echo: bool,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    Chat(Vec<Message>),
    Prompts(Vec<Prompt>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    Text(String),
    Ids(Vec<u32>),
}

const MAX_LIKELIEST: usize = 20;
/// Maximum of numbers without a smaller one.
const MAX_NUMBER: usize = u32::MAX as usize;
/// Number of stop texts, and bytes of each.
const MAX_STOPS: (usize, usize) = (16, 1024);
/// OpenAI's default of `max_tokens`.
const DEFAULT_MAX_TOKENS: usize = 16;
/// Maximum number of replies to all prompts of a request.
const MAX_REPLIES: usize = 1024;

/// Fields that change no reply.
const HARMLESS: [&str; 6] = [
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
];

/// Whether an unsupported field has a value without effect.
fn has_no_effect(name: &str, value: &Value) -> bool {
    match name {
        "frequency_penalty" | "presence_penalty" => value.as_f64() == Some(0.0),
        "logit_bias" => value.as_object().is_some_and(Map::is_empty),
        "tools" | "functions" => value.as_array().is_some_and(Vec::is_empty),
        "tool_choice" | "function_call" => value == "none" || value == "auto",
        "parallel_tool_calls" => value.is_boolean(),
        "response_format" => value["type"] == "text",
        "modalities" => *value == serde_json::json!(["text"]),
        "store" => *value == false,
        "best_of" => value.as_u64() == Some(1),
        "suffix" => value == "",
        _ => false,
    }
}

pub(crate) fn chat(body: &[u8]) -> Result<CompletionRequest, ApiError> {
    let mut fields = RequestFields::of(body)?;
    let messages = fields.needed("messages", "a list of messages", |v| v.as_array().cloned())?;
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "the list is empty"));
    }
    let messages = messages.into_iter().enumerate();
    let messages = messages.map(|(i, value)| message(i, value));
    let input = Input::Chat(messages.collect::<Result<_, _>>()?);
    let new = fields.number("max_completion_tokens", 1, MAX_NUMBER)?;
    let old = fields.number("max_tokens", 1, MAX_NUMBER)?;
    if new.is_some() && old.is_some() {
        let problem = "max_tokens and max_completion_tokens: give one";
        return Err(ApiError::field("max_tokens", "invalid_value", problem));
    }
    let likeliest = fields.number("top_logprobs", 0, MAX_LIKELIEST)?;
    let likeliest = match (fields.flag("logprobs")?, likeliest) {
        (true, likeliest) => Some(likeliest.unwrap_or(0)),
        (false, None | Some(0)) => None,
        (false, Some(_)) => {
            let problem = "wanted together with \"logprobs\": true";
            return Err(ApiError::invalid("top_logprobs", problem));
        }
    };
    fields.finish(input, new.or(old), likeliest, false)
}

pub(crate) fn completion(body: &[u8]) -> Result<CompletionRequest, ApiError> {
    let mut fields = RequestFields::of(body)?;
    const WANTED: &str = "a text, a list of texts, a list of token ids, or a list of such lists";
    let prompts = fields.needed("prompt", WANTED, prompts)?;
    let likeliest = fields.number("logprobs", 0, MAX_LIKELIEST)?;
    let echo = fields.flag("echo")?;
    // A prompt can be scored without new tokens.
    let most = fields.number("max_tokens", usize::from(!echo), MAX_NUMBER)?;
    let most = most.unwrap_or(DEFAULT_MAX_TOKENS);
    fields.finish(Input::Prompts(prompts), Some(most), likeliest, echo)
}

fn prompts(value: &Value) -> Option<Vec<Prompt>> {
    let ids = |list: &Vec<Value>| {
        let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        Some(Prompt::Ids(list.iter().map(id).collect::<Option<_>>()?))
    };
    let list = match value {
        Value::String(text) => return Some(vec![Prompt::Text(text.clone())]),
        Value::Array(list) if !list.is_empty() => list,
        _ => return None,
    };
    if list[0].is_number() {
        return Some(vec![ids(list)?]);
    }
    let one = |value: &Value| match value {
        Value::String(text) => Some(Prompt::Text(text.clone())),
        Value::Array(list) => ids(list),
        _ => None,
    };
    list.iter().map(one).collect()
}

/// Parses a message with a role and a text. Parts of a text are joined.
fn message(i: usize, value: Value) -> Result<Message, ApiError> {
    let wrong = |field: &str, problem: &str| {
        let place = format!("messages[{i}]{field}");
        Err(ApiError::invalid(&place, problem))
    };
    let Value::Object(map) = value else {
        return wrong("", "wanted {\"role\": \"user\", \"content\": \"...\"}");
    };
    // Clients send replies back with empty fields of other features.
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let is_unsupported = |(name, value): &(&String, &Value)| {
        !["role", "content"].contains(&name.as_str()) && !is_empty(value)
    };
    if let Some((name, _)) = map.iter().find(is_unsupported) {
        let problem = "is not supported; a message has a role and a content";
        return wrong(&format!(".{}", shown(name)), problem);
    }
    let role = match map.get("role").and_then(Value::as_str) {
        // The new name of the system role, which published templates lack.
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant")) => role,
        _ => return wrong(".role", "wanted system, developer, user or assistant"),
    };
    let part = |part: &Value| {
        let is_text = part["type"] == "text";
        part["text"].as_str().filter(|_| is_text).map(str::to_owned)
    };
    let content = match map.get("content") {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(parts)) => {
            let parts: Option<Vec<String>> = parts.iter().map(part).collect();
            parts.map(|parts| parts.concat())
        }
        _ => None,
    };
    let Some(content) = content else {
        let problem = "wanted a text, or a list of parts of the type text, the only type that this model reads";
        return wrong(".content", problem);
    };
    Ok(Message::new(role, content))
}

/// The fields of a request that are not parsed yet.
struct RequestFields {
    left: Map<String, Value>,
}

impl RequestFields {
    fn of(body: &[u8]) -> Result<RequestFields, ApiError> {
        let json = |e| ApiError::bad(format!("the body is not JSON: {e}"));
        match serde_json::from_slice(body).map_err(json)? {
            Value::Object(left) => Ok(RequestFields { left }),
            _ => Err(ApiError::bad("the body is not a JSON object")),
        }
    }

    /// Removes a field. `null` counts as missing.
    fn optional<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let value = self.left.remove(name).unwrap_or_default();
        if value.is_null() {
            return Ok(None);
        }
        read(&value).map(Some).ok_or_else(|| {
            let found = shown(&value.to_string());
            ApiError::invalid(name, format!("wanted {wanted}; found {found}"))
        })
    }

    fn needed<T>(
        &mut self,
        name: &str,
        wanted: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, ApiError> {
        self.optional(name, wanted, read)?.ok_or_else(|| {
            let problem = format!("{name} is missing: wanted {wanted}");
            ApiError::field(name, "missing_required_parameter", problem)
        })
    }

    fn number(&mut self, name: &str, least: usize, most: usize) -> Result<Option<usize>, ApiError> {
        let wanted = format!("an integer from {least} to {most}");
        self.optional(name, &wanted, |value| {
            let number = value.as_u64()?.try_into().ok()?;
            (least..=most).contains(&number).then_some(number)
        })
    }

    fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        let flag = self.optional(name, "true or false", Value::as_bool)?;
        Ok(flag.unwrap_or(false))
    }

    /// Parses the fields that both kinds of requests have, and refuses the rest.
    fn finish(
        mut self,
        input: Input,
        max_new_tokens: Option<usize>,
        likeliest: Option<usize>,
        echo: bool,
    ) -> Result<CompletionRequest, ApiError> {
        let model = self.needed("model", "the name of the model", |v| {
            v.as_str().map(str::to_owned)
        })?;
        let n = self.number("n", 1, 128)?.unwrap_or(1);
        let temperature =
            self.optional("temperature", "0, or a number from 0.001 to 1000", |v| {
                let x = v.as_f64()? as f32;
                (x == 0.0 || (1e-3..=1e3).contains(&x)).then_some(x)
            })?;
        let top_p = self.optional("top_p", "a number above 0, at most 1", |v| {
            let x = v.as_f64()? as f32;
            (x > 0.0 && x <= 1.0).then_some(x)
        })?;
        let top_k = self.number("top_k", 0, MAX_NUMBER)?;
        let seed = self.optional("seed", "an integer of at most 64 bits", |v| {
            v.as_u64().or_else(|| v.as_i64().map(|seed| seed as u64))
        })?;
        let (many, long) = MAX_STOPS;
        let wanted =
            format!("a text, or a list of at most {many} texts, each of 1 to {long} bytes");
        let stop = self.optional("stop", &wanted, |value| {
            let text = |value: &Value| {
                let text = value.as_str()?;
                (1..=long).contains(&text.len()).then(|| text.to_owned())
            };
            match value {
                Value::Array(list) if list.len() <= many => list.iter().map(text).collect(),
                one => text(one).map(|text| vec![text]),
            }
        })?;
        let stream = self.flag("stream")?;
        let include_usage = self.stream_options(stream)?;
        let prompts = match &input {
            Input::Chat(_) => 1,
            Input::Prompts(prompts) => prompts.len(),
        };
        if prompts.saturating_mul(n) > MAX_REPLIES {
            let problem = format!(
                "{prompts} prompts with {n} replies each are too many; at most {MAX_REPLIES} in all"
            );
            return Err(ApiError::invalid("n", problem));
        }
        for (name, value) in &self.left {
            if value.is_null() || HARMLESS.contains(&&**name) || has_no_effect(name, value) {
                continue;
            }
            let name = shown(name);
            let problem = format!("{name}: this server does not support it; leave it out");
            return Err(ApiError::field(&name, "unsupported_parameter", problem));
        }
        Ok(CompletionRequest {
            model,
            input,
            n,
            max_new_tokens,
            temperature: temperature.unwrap_or(1.0),
            top_p: top_p.unwrap_or(1.0),
            top_k: top_k.unwrap_or(0),
            seed,
            stop: stop.unwrap_or_default().into(),
            likeliest,
            echo,
            stream,
            include_usage,
        })
    }

    fn stream_options(&mut self, stream: bool) -> Result<bool, ApiError> {
        const NAME: &str = "stream_options";
        let wanted = "{\"include_usage\": true}";
        let options = self.optional(NAME, wanted, |value| {
            let options = value.as_object()?;
            let known = ["include_usage", "include_obfuscation"];
            let is_known =
                |(name, value): (&String, &Value)| known.contains(&&**name) && value.is_boolean();
            // This server adds no padding against listeners.
            let is_plain = options.get(known[1]).is_none_or(|value| *value == false);
            (options.iter().all(is_known) && is_plain)
                .then(|| options.get(known[0]).is_some_and(|value| *value == true))
        })?;
        match options {
            Some(_) if !stream => {
                let problem = "wanted together with \"stream\": true only";
                Err(ApiError::invalid(NAME, problem))
            }
            options => Ok(options.unwrap_or(false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of_chat(more: Value) -> Result<CompletionRequest, ApiError> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        chat(body.to_string().as_bytes())
    }

    fn of_prompt(prompt: Value) -> Result<Vec<Prompt>, ApiError> {
        let body = json!({"model": "m", "prompt": prompt});
        match completion(body.to_string().as_bytes())?.input {
            Input::Prompts(prompts) => Ok(prompts),
            Input::Chat(_) => panic!("a completion"),
        }
    }

    fn param(error: Result<CompletionRequest, ApiError>) -> String {
        let body = error.unwrap_err().body();
        body["error"]["param"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    #[test]
    fn unsupported_fields_are_refused_unless_they_have_no_effect() {
        for (name, idle, wrong) in [
            ("tools", json!([]), json!([{"type": "function"}])),
            ("tool_choice", json!("none"), json!("required")),
            (
                "response_format",
                json!({"type": "text"}),
                json!({"type": "json_object"}),
            ),
            ("presence_penalty", json!(0), json!(0.5)),
            ("frequency_penalty", json!(0.0), json!(-1)),
            ("logit_bias", json!({}), json!({"5": 100})),
            ("store", json!(false), json!(true)),
            ("modalities", json!(["text"]), json!(["audio"])),
            ("min_p", json!(null), json!(0.1)),
            ("prediction", json!(null), json!({"type": "content"})),
        ] {
            assert!(of_chat(json!({name: idle})).is_ok(), "{name}");
            let error = of_chat(json!({name: wrong})).unwrap_err();
            assert_eq!(error.status, 400);
            let error = error.body()["error"].clone();
            assert_eq!(
                (&error["param"], &error["code"]),
                (&json!(name), &json!("unsupported_parameter"))
            );
        }
        for name in HARMLESS {
            assert!(of_chat(json!({name: "x"})).is_ok(), "{name}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (name, value) in [
            ("temperature", json!(-1)),
            ("temperature", json!("hot")),
            ("top_p", json!(0)),
            ("n", json!(0)),
            ("n", json!(129)),
            ("max_tokens", json!(0)),
            ("max_tokens", json!(1.5)),
            ("seed", json!(0.5)),
            ("stop", json!("")),
            ("stop", json!(["a", 1])),
            ("stop", json!(vec!["a"; 17])),
            ("stream", json!("yes")),
            ("stream_options", json!({"include_usage": true})),
            ("top_logprobs", json!(3)),
            ("logprobs", json!(3)),
            ("messages", json!([])),
            ("messages", json!("a")),
            ("messages[0]", json!(["a"])),
            ("model", json!(3)),
        ] {
            let field = name.split('[').next().unwrap();
            assert_eq!(param(of_chat(json!({field: value}))), name, "{value}");
        }
        let both = json!({"max_tokens": 3, "max_completion_tokens": 3});
        assert_eq!(param(of_chat(both)), "max_tokens");
        let top = json!({"logprobs": true, "top_logprobs": 21});
        assert_eq!(param(of_chat(top)), "top_logprobs");
        let options = json!({"stream": true, "stream_options": {"chunks": 3}});
        assert_eq!(param(of_chat(options)), "stream_options");
        assert_eq!(of_chat(json!({"seed": -1})).unwrap().seed, Some(u64::MAX));
    }

    #[test]
    fn messages_have_a_role_and_a_text() {
        let content = |message: Value| of_chat(json!({"messages": [message]}));
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let said =
            content(json!({"role": "developer", "content": parts, "tool_calls": []})).unwrap();
        assert_eq!(said.input, Input::Chat(vec![Message::new("system", "ab")]));
        for (message, at) in [
            (json!({"role": "tool", "content": "a"}), ".role"),
            (json!({"content": "a"}), ".role"),
            (json!({"role": "user"}), ".content"),
            (
                json!({"role": "user", "content": [{"type": "image_url"}]}),
                ".content",
            ),
            (
                json!({"role": "user", "content": "a", "name": "x"}),
                ".name",
            ),
        ] {
            assert_eq!(param(content(message)), format!("messages[0]{at}"));
        }
    }

    #[test]
    fn a_prompt_has_four_forms() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(of_prompt(json!("a")).unwrap(), [text("a")]);
        assert_eq!(
            of_prompt(json!(["a", "b"])).unwrap(),
            [text("a"), text("b")]
        );
        assert_eq!(of_prompt(json!([1, 2])).unwrap(), [Prompt::Ids(vec![1, 2])]);
        assert_eq!(
            of_prompt(json!([[1], [2]])).unwrap(),
            [Prompt::Ids(vec![1]), Prompt::Ids(vec![2])]
        );
        for wrong in [
            json!([]),
            json!(3),
            json!([1, "a"]),
            json!([-1]),
            json!([5_000_000_000u64]),
            json!({}),
        ] {
            assert!(of_prompt(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
