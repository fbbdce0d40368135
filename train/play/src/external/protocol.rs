//! OpenEnv's messages: requests and valid answers.

use std::fmt::Debug;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The maximum number of bytes of a message. Observations are read by a model: the longest prompts have some hundred
/// thousand.
pub(super) const LONGEST: usize = 16 << 20;

/// A session with one environment over any transport. Dropping it sends `close`.
pub(super) trait EnvironmentSession: Send + Debug {
    /// Sends a message and waits for the answer.
    fn ask(&mut self, request: Value) -> Result<StepResult, SessionError>;
}

/// Why there is no answer. The session is unusable afterwards.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SessionError {
    /// The other side closed the connection. It may do so between two episodes.
    Closed(String),
    /// Any other failure.
    Other(String),
}

impl SessionError {
    pub(crate) fn problem(self) -> String {
        match self {
            SessionError::Closed(problem) | SessionError::Other(problem) => problem,
        }
    }
}

/// A state of the environment, and the reward of the step that led to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepResult {
    pub(crate) observation: Value,
    /// `None`: the environment sent none
    pub(crate) reward: Option<f64>,
    pub(crate) done: bool,
    /// whether a time limit of the environment ended the episode
    pub(crate) truncated: bool,
}

/// A parsed message: its session, and an answer or an error.
#[derive(Debug, PartialEq)]
pub(super) struct Response {
    pub(crate) session: Option<u64>,
    pub(crate) content: Result<StepResult, String>,
}

/// Builds the message that starts an episode.
pub(super) fn reset(scene: u64, luck: Option<(&str, u64)>) -> Value {
    // Many environments require a seed that fits a signed 32-bit integer, and all accept one.
    let seed = |number: u64| json!(number & 0x7fff_ffff);
    let mut data = json!({ "seed": seed(scene) });
    if let Some((field, luck)) = luck {
        data[field] = seed(luck);
    }
    json!({ "type": "reset", "data": data })
}

pub(super) fn step(action: Map<String, Value>) -> Value {
    json!({ "type": "step", "data": action })
}

/// Builds the message that ends a session. It has no answer.
pub(super) fn close() -> Value {
    json!({ "type": "close" })
}

/// Parses a message. The error describes the problem and quotes the message.
pub(super) fn read(bytes: &[u8]) -> Result<Response, String> {
    let wrong = |problem: &str| format!("{problem}: {}", quoted(bytes));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("what it wrote is not UTF-8"))?;
    let value: Value = serde_json::from_str(text)
        .map_err(|error| wrong(&format!("what it wrote is not JSON ({error})")))?;
    let Value::Object(message) = value else {
        return Err(wrong("its output is not a message, which is a JSON object"));
    };
    let session = message.get("session").map(|number| {
        let number = number.as_u64();
        number.ok_or_else(|| wrong("`session` is no number of a session"))
    });
    let session = session.transpose()?;
    let data = message.get("data").cloned().unwrap_or_default();
    let content = match message.get("type").and_then(Value::as_str) {
        Some("observation") => Ok(answer(data).map_err(|problem| wrong(&problem))?),
        Some("error") => Err(environment_error(&data)),
        Some(other) => {
            let problem = format!(
                "the answer is of type {}, and not `observation` or `error`",
                quoted(other.as_bytes())
            );
            return Err(wrong(&problem));
        }
        None => return Err(wrong("the message has no `type`")),
    };
    Ok(Response { session, content })
}

/// The `data` of an observation. Other fields are ignored.
fn answer(data: Value) -> Result<StepResult, String> {
    #[derive(Deserialize)]
    struct ObservationData {
        observation: Value,
        #[serde(default)]
        reward: Value,
        done: bool,
        #[serde(default)]
        truncated: bool,
    }
    let data: ObservationData = serde_json::from_value(data)
        .map_err(|error| format!("the observation is wrong ({error})"))?;
    let reward = match data.reward {
        Value::Null => None,
        // OpenEnv allows it.
        Value::Bool(is) => Some(f64::from(u8::from(is))),
        // JSON has finite numbers only.
        Value::Number(number) => number.as_f64(),
        _ => return Err("the reward is not a number".to_owned()),
    };
    Ok(StepResult {
        observation: data.observation,
        reward,
        done: data.done || data.truncated,
        truncated: data.truncated,
    })
}

/// The environment's own error, with a fix for known ones.
fn environment_error(data: &Value) -> String {
    let text = |name: &str| data.get(name).and_then(Value::as_str);
    let message = text("message").map_or_else(|| data.to_string(), str::to_owned);
    let code = text("code").unwrap_or("no code");
    let cure = match code {
        "CAPACITY_REACHED" => {
            "; all episodes are played at once: start the server with MAX_CONCURRENT_ENVS set to as many, or play fewer \
             (eval.episodes; train.groups times train.group_size)"
        }
        "VALIDATION_ERROR" => "; the block `action` of the template makes what is sent",
        _ => "",
    };
    let code: String = code.chars().take(60).collect();
    format!(
        "the environment reports an error ({}): {}{cure}",
        code.escape_debug(),
        quoted(message.as_bytes())
    )
}

/// Quotes untrusted text for an error: control characters are escaped, and the length is limited.
pub(super) fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 200;
    // A character has at most four bytes.
    let start = &bytes[..bytes.len().min(4 * SHOWN)];
    let text = String::from_utf8_lossy(start);
    let shown: String = text.chars().take(SHOWN).collect();
    match shown.len() < text.len() || start.len() < bytes.len() {
        true => format!("{shown:?}... ({} bytes)", bytes.len()),
        false => format!("{shown:?}"),
    }
}
