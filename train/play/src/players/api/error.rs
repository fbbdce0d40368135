//! Errors of a model behind an API. No message contains the key.

use std::path::PathBuf;
use std::time::Duration;

/// A model behind an API cannot play.
#[derive(Debug, thiserror::Error)]
pub enum ApiPlayerError {
    /// The URL is invalid.
    #[error(
        "the address of the API {problem}: wanted http(s)://HOST[:PORT]/PATH, such as http://127.0.0.1:8000/v1"
    )]
    Address {
        /// What is wrong with it.
        problem: String,
    },
    /// The key would be sent unencrypted.
    #[error(
        "OPENAI_API_KEY would be sent to {host} without encryption: use https, or unset OPENAI_API_KEY if the server wants \
         no key"
    )]
    Exposed {
        /// The host.
        host: String,
    },
    /// The key contains invalid characters.
    #[error("OPENAI_API_KEY holds characters that no key has, such as a line end: set it anew")]
    Key,
    /// The server answered with an error or not at all.
    #[error("the API at {url} {what}{}", tried(*.attempts))]
    Failed {
        /// The URL.
        url: String,
        /// The failure, shortened and escaped.
        what: String,
        /// The number of attempts.
        attempts: usize,
    },
    /// The server asks for a longer wait than a run allows.
    #[error(
        "the API at {url} asks to be left alone for {} s (Retry-After): try again then; what it has answered so far is in \
         the cache", .wait.as_secs()
    )]
    Busy {
        /// The URL.
        url: String,
        /// The wait.
        wait: Duration,
    },
    /// The answer is not a chat completion.
    #[error("the API at {url} gave an answer that is no chat completion ({problem}): {body}")]
    Schema {
        /// The URL.
        url: String,
        /// What is missing.
        problem: String,
        /// The answer, shortened and escaped.
        body: String,
    },
    /// The token budget is used up.
    #[error(
        "the budget of {budget} tokens is used up ({used} used): what was answered so far is in the cache, so that the same \
         command with a larger --player-budget goes on from there"
    )]
    Budget {
        /// The allowed tokens.
        budget: u64,
        /// The used tokens.
        used: u64,
    },
    /// The cache cannot be written.
    #[error("cannot write {} ({reason}): name another directory with --player-cache", .path.display())]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        reason: std::io::Error,
    },
}

fn tried(attempts: usize) -> String {
    match attempts {
        1 => String::new(),
        attempts => format!(" ({attempts} attempts)"),
    }
}

/// Escapes untrusted text for a message, and shortens it to 300 characters.
pub(super) fn excerpt(text: &str) -> String {
    const MOST: usize = 300;
    let mut letters = text.trim().chars();
    let begin: String = letters.by_ref().take(MOST).collect();
    let rest = if letters.next().is_some() { "..." } else { "" };
    format!("{begin:?}{rest}")
}
