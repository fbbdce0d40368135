//! External environments: games in a child process or behind a WebSocket.
//!
//! `exec:COMMAND` names a child process that exchanges JSON lines; `ws://HOST:PORT/ws` names a server such as
//! OpenEnv's. Both use the messages of `protocol`. A `template` turns observations into text and actions into JSON.
//! `docs/environments.md` describes how to connect an environment.

mod options;
mod process;
mod protocol;
mod scenario;
mod socket;
mod template;
#[cfg(test)]
mod tests;

use std::fmt;

use lapwing_env::{OptionsError, Scenario};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use process::end_all;

/// Why an environment is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum ExternalError {
    /// An invalid name; the text describes valid ones.
    #[error("wanted {0}")]
    Name(String),
    /// An invalid option.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

/// Where an environment runs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Address {
    /// A child process: the program and its arguments.
    Process(Vec<String>),
    /// The URL of a server.
    Socket(String),
}

/// The name of a game, which includes where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GameName {
    /// One of the built-in games, or a variant of one.
    BuiltIn(String),
    /// `exec:COMMAND`: in a child process.
    Process(String),
    /// `ws://HOST:PORT/PATH`: behind a server.
    Socket(String),
}

impl GameName {
    /// Returns whether the game is external.
    pub fn is_external(&self) -> bool {
        !matches!(self, GameName::BuiltIn(_))
    }

    /// Returns a name fit for a directory: a built-in game's own, or the command or address with dashes in place of all
    /// but letters, digits, dots and underscores.
    pub fn short(&self) -> String {
        const MAX_CHARS: usize = 60;
        let name = match self {
            GameName::BuiltIn(name) => return name.clone(),
            GameName::Process(name) | GameName::Socket(name) => name,
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
        let words = name.split(|c| !is_plain(c)).filter(|word| !word.is_empty());
        let joined = words.collect::<Vec<_>>().join("-");
        let short = joined.chars().take(MAX_CHARS).collect::<String>();
        match short.trim_matches(['.', '-']) {
            "" => "environment".to_owned(),
            short => short.to_owned(),
        }
    }
}

impl From<&str> for GameName {
    fn from(name: &str) -> GameName {
        match name.strip_prefix("exec:") {
            Some(command) => GameName::Process(command.to_owned()),
            None if name.starts_with("ws://") || name.starts_with("wss://") => {
                GameName::Socket(name.to_owned())
            }
            None => GameName::BuiltIn(name.to_owned()),
        }
    }
}

impl From<String> for GameName {
    fn from(name: String) -> GameName {
        GameName::from(&*name)
    }
}

impl From<GameName> for String {
    fn from(name: GameName) -> String {
        name.to_string()
    }
}

impl fmt::Display for GameName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GameName::Process(command) => write!(f, "exec:{command}"),
            GameName::BuiltIn(name) | GameName::Socket(name) => f.write_str(name),
        }
    }
}

/// Configures the external environment `name`. Starts and connects to nothing before the first episode.
///
/// # Errors
/// If the name is neither a command nor an address, an option is invalid, or the template cannot be read.
pub(crate) fn configure(
    name: &GameName,
    options: &Value,
) -> Result<Box<dyn Scenario>, ExternalError> {
    let address = Address::parse(name).map_err(ExternalError::Name)?;
    let name = name.to_string();
    let options = options::ExternalOptions::checked(&name, options)?;
    Ok(Box::new(scenario::ExternalScenario::new(
        &name, address, options,
    )?))
}

impl Address {
    /// Parses an external name. The error describes what was wanted.
    fn parse(name: &GameName) -> Result<Address, String> {
        let command = match name {
            GameName::Process(command) => command,
            GameName::Socket(url) | GameName::BuiltIn(url) => {
                return socket::check(url).map(|()| Address::Socket(url.clone()));
            }
        };
        match shlex::split(command) {
            None => Err("a command whose quotes are closed".to_owned()),
            Some(words) if words.first().is_none_or(String::is_empty) => {
                Err("exec:COMMAND, such as exec:python3 game.py".to_owned())
            }
            Some(words) if words.iter().any(|word| word.contains('\0')) => {
                Err("a command without null characters".to_owned())
            }
            Some(words) => Ok(Address::Process(words)),
        }
    }
}
