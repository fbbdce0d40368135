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

use lapwing_env::{OptionsError, Scenario};
use serde_json::Value;

pub use process::end_all;

/// Why an environment cannot be had.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refused {
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

/// What begins the name of a game that is a command.
const COMMAND: &str = "exec:";

/// Whether a game of this name lives elsewhere.
pub fn is_external(name: &str) -> bool {
    name.starts_with(COMMAND) || name.starts_with("ws://") || name.starts_with("wss://")
}

/// A name for what concerns such a game, fit for a directory: its own, with dashes for all but letters, digits, dots and
/// underscores.
pub fn short_name(name: &str) -> String {
    const LONGEST: usize = 60;
    let name = name.strip_prefix(COMMAND).unwrap_or(name);
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "._".contains(*c);
    let dashed: String = name
        .chars()
        .map(|c| if is_plain(&c) { c } else { '-' })
        .collect();
    let words = dashed.split('-').filter(|word| !word.is_empty());
    let joined = words.collect::<Vec<_>>().join("-");
    let short = joined.chars().take(LONGEST).collect::<String>();
    match short.trim_matches(['.', '-']) {
        "" => "environment".to_owned(),
        short => short.to_owned(),
    }
}

/// Makes a scenario of a name for which [`is_external`] holds. Nothing is started or called before its first episode.
///
/// # Errors
/// If the name is no command and no address, an option is wrong, or the template cannot be read.
pub fn configure(name: &str, options: &Value) -> Result<Box<dyn Scenario>, Refused> {
    let address = Address::parse(name).map_err(Refused::Name)?;
    let options = options::ExternalOptions::checked(name, options)?;
    Ok(Box::new(scenario::Elsewhere::new(name, address, options)?))
}

impl Address {
    /// The error says what was wanted instead.
    fn parse(name: &str) -> Result<Address, String> {
        let Some(command) = name.strip_prefix(COMMAND) else {
            return socket::check(name).map(|()| Address::Socket(name.to_owned()));
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
