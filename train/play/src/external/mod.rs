//! Games that live elsewhere: in a child process, or behind a WebSocket.
//!
//! `exec:COMMAND` names a child process that speaks JSON lines, `ws://HOST:PORT/ws` a server, as OpenEnv's are. Both get
//! the same messages (`protocol`); a template (`template`) makes text of what they show, and of an action what they
//! want. `docs/environments.md` says how to plug in an environment of one's own.

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

/// Why an environment cannot be had.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum ExternalError {
    /// Its name says no place; this is what was wanted.
    #[error("wanted {0}")]
    Name(String),
    /// An option that it does not take.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

/// Where an environment is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Address {
    /// a child process: the program and its arguments
    Process(Vec<String>),
    /// a server
    Socket(String),
}

/// The name of a game, which says where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GameName {
    /// One of the built-in games, or a variant of one.
    BuiltIn(String),
    /// `exec:COMMAND`: in a child process with this command.
    Process(String),
    /// `ws://HOST:PORT/PATH`: behind the server of this address.
    Socket(String),
}

impl GameName {
    /// Whether the game is not built in.
    pub fn is_external(&self) -> bool {
        !matches!(self, GameName::BuiltIn(_))
    }

    /// A name fit for a directory: that of a built-in game, or else the command or address with dashes for all but letters,
    /// digits, dots and underscores.
    pub fn short(&self) -> String {
        const LONGEST: usize = 60;
        let name = match self {
            GameName::BuiltIn(name) => return name.clone(),
            GameName::Process(name) | GameName::Socket(name) => name,
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
        let words = name.split(|c| !is_plain(c)).filter(|word| !word.is_empty());
        let joined = words.collect::<Vec<_>>().join("-");
        let short = joined.chars().take(LONGEST).collect::<String>();
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

/// Makes a scenario of a name for which [`GameName::is_external`] holds. Nothing is started or called before its first episode.
/// Fails if the name is no command and no address, an option is wrong, or the template cannot be read.
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
    /// The error says what was wanted instead.
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
