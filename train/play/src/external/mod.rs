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

use lapwing_env::{DeclaredOption, DeclaredOptions};
use serde::{Deserialize, Serialize};

pub use process::end_all;
pub(crate) use scenario::configure;

/// The options of external games.
pub const OPTIONS: &[DeclaredOption] = options::ExternalOptions::LIST;

/// The location of an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// a child process: the program and its arguments
    Process(Vec<String>),
    /// a server
    Socket(String),
}

/// The name of a game, which includes its location: the name of a built-in game or a variant, `exec:COMMAND` for a child
/// process, or `ws://HOST:PORT/PATH` for a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GameName(String);

impl GameName {
    /// Returns whether the game is external.
    pub fn is_external(&self) -> bool {
        let is_socket = self.0.starts_with("ws://") || self.0.starts_with("wss://");
        is_socket || self.0.starts_with(PROCESS)
    }

    /// Returns the name without the user name and password of an address.
    pub fn without_user(&self) -> String {
        match self.0.rsplit_once('@') {
            Some((_, host)) if self.0.starts_with("ws") => format!("ws://...@{host}"),
            _ => self.0.clone(),
        }
    }

    /// Returns the form of an external game's name, if this name of no game is close to one.
    pub fn external_form(&self) -> Option<String> {
        let form = match &*self.0 {
            name if name.contains("://") => "ws://localhost:8000/ws".to_owned(),
            name if name.ends_with(".py") && !name.contains(' ') => format!("exec:python3 {name}"),
            name => format!("exec:{name}"),
        };
        let is_close = self.0.contains(['.', '/', ' ']);
        let wanted = "a game of `lapwing games`, exec:COMMAND or ws://HOST:PORT/ws, such as";
        is_close.then(|| format!("{wanted} {form}"))
    }

    /// Returns a name for a directory: the name of a built-in game; otherwise the command or address, with dashes for
    /// everything but letters, digits, dots and underscores.
    pub fn short(&self) -> String {
        const LONGEST: usize = 60;
        let name = self.0.strip_prefix(PROCESS).unwrap_or(&self.0);
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
        GameName(name.to_owned())
    }
}

impl fmt::Display for GameName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The beginning of the name of a child process.
const PROCESS: &str = "exec:";

impl Address {
    /// Parses a name for which [`GameName::is_external`] holds. The error is the expected form.
    pub(crate) fn parse(name: &GameName) -> Result<Address, String> {
        let Some(command) = name.0.strip_prefix(PROCESS) else {
            return socket::check(&name.0).map(|()| Address::Socket(name.0.clone()));
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
