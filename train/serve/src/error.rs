//! What is wrong with a request, as OpenAI's API says it.

use lapwing_model::ModelError;
use serde_json::{Value, json};

/// A refusal. The text is for whoever sent the request; it names no file of this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// of HTTP
    pub status: u16,
    message: String,
    kind: &'static str,
    /// the field at fault
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    /// The request is wrong.
    pub fn bad(message: impl Into<String>) -> ApiError {
        ApiError {
            status: 400,
            message: message.into(),
            kind: "invalid_request_error",
            param: None,
            code: None,
        }
    }

    /// One of its fields is.
    pub fn field(name: &str, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError {
            param: Some(name.to_owned()),
            code: Some(code),
            ..ApiError::bad(message)
        }
    }

    /// Another status than 400.
    pub fn status(status: u16, code: &'static str, message: impl Into<String>) -> ApiError {
        let kind = match status {
            401 => "authentication_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        ApiError {
            status,
            kind,
            code: Some(code),
            ..ApiError::bad(message)
        }
    }

    /// The model has no way with this text.
    pub fn text(error: &ModelError) -> ApiError {
        ApiError::bad(shown(&without_path(error)))
    }

    /// It is not the request's fault.
    pub fn internal(error: &ModelError) -> ApiError {
        ApiError::status(500, "internal_error", shown(&without_path(error)))
    }

    /// The server ends.
    pub fn stopping() -> ApiError {
        ApiError::status(503, "server_stopping", "the server is stopping")
    }

    /// Whether the same request may be right later.
    pub fn is_passing(&self) -> bool {
        matches!(self.status, 429 | 503)
    }

    /// As it is sent.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

/// What is wrong, without the place of the file.
fn without_path(error: &ModelError) -> String {
    match error {
        ModelError::File { problem, .. } | ModelError::Field { problem, .. } => problem.clone(),
        other => other.to_string(),
    }
}

/// A text of a request, cut where it says no more.
pub fn shown(text: &str) -> String {
    const LONGEST: usize = 300;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}
