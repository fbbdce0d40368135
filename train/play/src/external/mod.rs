//! External environments: games in a child process or behind a WebSocket.
//!
//! `exec:COMMAND` names a child process that exchanges JSON lines, `ws://HOST:PORT/ws` a server such as OpenEnv's. Both
//! get the same messages (`protocol`). A template (`template`) converts observations to text, and actions to the
//! messages that the environment expects. `docs/environments.md` explains how to connect an environment.

mod options;
mod process;
mod protocol;
mod scenario;
mod socket;
mod template;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use process::end_all;
pub(crate) use scenario::configure;

/// The location of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// a child process: the program and its arguments
    Process(Vec<String>),
    /// a server
    Socket(String),
}

/// The name of a game, which includes its location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GameName {
    /// A built-in game or a variant of one.
    BuiltIn(String),
    /// `exec:COMMAND`: a child process with this command.
    Process(String),
    /// `ws://HOST:PORT/PATH`: a server at this address.
    Socket(String),
}

impl GameName {
    /// Returns whether the game is external.
    pub fn is_external(&self) -> bool {
        !matches!(self, GameName::BuiltIn(_))
    }

    /// Returns the name without the user name and password of an address.
    pub(crate) fn without_user(&self) -> String {
        let name = self.to_string();
        match (self, name.rsplit_once('@')) {
            (GameName::Socket(_), Some((_, host))) => format!("ws://...@{host}"),
            _ => name,
        }
    }

    /// Returns a name for a directory: the name of a built-in game; otherwise the command or address, with dashes for
    /// everything but letters, digits, dots and underscores.
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

impl Address {
    /// Parses a name for which [`GameName::is_external`] holds. The error is the expected form.
    pub(crate) fn parse(name: &GameName) -> Result<Address, String> {
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
