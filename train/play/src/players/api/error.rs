//! What can go wrong with a model behind an API. No text here holds the key.

use std::path::PathBuf;
use std::time::Duration;

/// A model behind an API cannot play.
#[derive(Debug, thiserror::Error)]
pub enum ApiPlayerError {
    /// The address is none, or none that a key may be sent to.
    #[error(
        "the address of the API {problem}: wanted http(s)://HOST[:PORT]/PATH, such as http://127.0.0.1:8000/v1"
    )]
    Address {
        /// What is wrong with it.
        problem: String,
    },
    /// The key would cross a network where everybody can read it.
    #[error(
        "OPENAI_API_KEY would be sent to {host} without encryption: use https, or unset OPENAI_API_KEY if the server wants \
         no key"
    )]
    Exposed {
        /// Who would get it.
        host: String,
    },
    /// The key cannot be sent.
    #[error("OPENAI_API_KEY holds characters that no key has, such as a line end: set it anew")]
    Key,
    /// The server did not answer, or with an error.
    #[error("the API at {url} {what}{}", tried(*.attempts))]
    Failed {
        /// Where.
        url: String,
        /// What came instead of an answer, cut and escaped.
        what: String,
        /// How often it was asked.
        attempts: usize,
    },
    /// The server wants to be left alone for longer than a run can wait.
    #[error(
        "the API at {url} asks to be left alone for {} s (Retry-After): try again then; what it has answered so far is in \
         the cache", .wait.as_secs()
    )]
    Busy {
        /// Where.
        url: String,
        /// For how long.
        wait: Duration,
    },
    /// The answer is no chat completion.
    #[error("the API at {url} gave an answer that is no chat completion ({problem}): {body}")]
    Schema {
        /// Where.
        url: String,
        /// What is missing.
        problem: String,
        /// What it gave, cut and escaped.
        body: String,
    },
    /// All tokens that may be used have been.
    #[error(
        "the budget of {budget} tokens is used up ({used} used): what was answered so far is in the cache, so that the same \
         command with a larger --player-budget goes on from there"
    )]
    Budget {
        /// Tokens that were allowed.
        budget: u64,
        /// Tokens that were used.
        used: u64,
    },
    /// The cache cannot be written.
    #[error("cannot write {} ({reason}): name another directory with --player-cache", .path.display())]
    Cache {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
}

fn tried(attempts: usize) -> String {
    match attempts {
        1 => String::new(),
        attempts => format!(" ({attempts} attempts)"),
    }
}

/// A stranger's text for a message: so many letters of it, those that act on a terminal escaped.
pub(super) fn excerpt(text: &str) -> String {
    const MOST: usize = 300;
    let mut letters = text.trim().chars();
    let begin: String = letters.by_ref().take(MOST).collect();
    let rest = if letters.next().is_some() { "..." } else { "" };
    format!("{begin:?}{rest}")
}
