//! Errors in the format of OpenAI's API.

use std::fmt::Display;

use lapwing_model::ModelError;
use serde_json::{Value, json};

/// An error response. Its text names no file of this machine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    /// Status code of HTTP.
    pub(crate) status: u16,
    pub(crate) message: String,
    kind: &'static str,
    /// The wrong field.
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    /// A wrong request.
    pub(crate) fn bad(message: impl Into<String>) -> ApiError {
        ApiError {
            status: 400,
            message: message.into(),
            kind: "invalid_request_error",
            param: None,
            code: None,
        }
    }

    /// A wrong field of a request.
    pub(crate) fn field(name: &str, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError {
            param: Some(name.to_owned()),
            code: Some(code),
            ..ApiError::bad(message)
        }
    }

    /// A wrong value of a field, whose name begins the message.
    pub(crate) fn invalid(name: &str, problem: impl Display) -> ApiError {
        ApiError::field(name, "invalid_value", format!("{name}: {problem}"))
    }

    /// An error with another status than 400.
    pub(crate) fn status(status: u16, code: &'static str, message: impl Into<String>) -> ApiError {
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

    /// An error of the tokenizer or the template, because of a text.
    pub(crate) fn text(error: &ModelError) -> ApiError {
        ApiError::bad(shown(&without_path(error)))
    }

    /// An error of the model or the device.
    pub(crate) fn internal(error: &ModelError) -> ApiError {
        ApiError::status(500, "internal_error", shown(&without_path(error)))
    }

    /// The error of all requests in progress when the server stops.
    pub(crate) fn stopping() -> ApiError {
        ApiError::status(503, "server_stopping", "the server is stopping")
    }

    pub(crate) fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }})
    }
}

fn without_path(error: &ModelError) -> String {
    match error {
        ModelError::File { problem, .. } => problem.clone(),
        other => other.to_string(),
    }
}

/// Shortens a text of a request.
pub(crate) fn shown(text: &str) -> String {
    match text.char_indices().nth(300) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}
