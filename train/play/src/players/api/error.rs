//! Errors of models behind an API. No text here contains the key.

use std::path::PathBuf;
use std::time::Duration;

/// A model behind an API cannot play.
#[derive(Debug, thiserror::Error)]
pub enum ApiPlayerError {
    /// The address is invalid, or the key may not be sent to it.
    #[error(
        "the address of the API {problem}: wanted http(s)://HOST[:PORT]/PATH, such as http://127.0.0.1:8000/v1"
    )]
    Address {
        /// What is wrong with it.
        problem: String,
    },
    /// The key would be sent unencrypted over a network.
    #[error(
        "OPENAI_API_KEY would be sent to {host} without encryption: use https, or unset OPENAI_API_KEY if the server needs \
         no key"
    )]
    Exposed {
        /// The address that would get it.
        host: String,
    },
    /// The key contains characters that cannot be sent.
    #[error("OPENAI_API_KEY contains characters that no key has, such as a line end: set it again")]
    Key,
    /// The server did not answer, or answered with an error.
    #[error("the API at {url} {what}{}", tried(*.attempts))]
    Failed {
        /// The address.
        url: String,
        /// The answer or failure, cut and escaped.
        what: String,
        /// The number of attempts.
        attempts: usize,
    },
    /// The server requests a longer pause than a run can wait.
    #[error(
        "the API at {url} requests a pause of {} s (Retry-After): try again then; its answers so far are in \
         the cache", .wait.as_secs()
    )]
    Busy {
        /// The address.
        url: String,
        /// The requested pause.
        wait: Duration,
    },
    /// The answer is not a chat completion.
    #[error(
        "the API at {url} returned an answer that is not a chat completion ({problem}): {body}"
    )]
    Schema {
        /// The address.
        url: String,
        /// What is missing.
        problem: String,
        /// The answer, cut and escaped.
        body: String,
    },
    /// The token budget is used up.
    #[error(
        "the budget of {budget} tokens is used up ({used} used): the answers so far are in the cache, so the same \
         command with a larger --player-budget continues from there"
    )]
    Budget {
        /// The budget.
        budget: u64,
        /// The tokens used.
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

/// Quotes untrusted text for a message: at most this many characters, with control characters escaped.
pub(super) fn excerpt(text: &str) -> String {
    const MOST: usize = 300;
    let mut letters = text.trim().chars();
    let begin: String = letters.by_ref().take(MOST).collect();
    let rest = if letters.next().is_some() { "..." } else { "" };
    format!("{begin:?}{rest}")
}
