//! Errors of configs.

use std::path::PathBuf;

use lapwing_play::SettingError;
use thiserror::Error;
use toml::Value;

/// A config that cannot be read, or that has an invalid value.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The argument does not name a config.
    #[error("{} {is}: {cure}", .path.display())]
    Place {
        /// The argument.
        path: PathBuf,
        /// What it is instead.
        is: &'static str,
        /// The fix, or the expected argument.
        cure: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(lapwing_model::ModelError),
    /// A name or key is unknown, a text is not TOML, or a value has the wrong type.
    #[error("{0}")]
    Invalid(String),
    /// Two settings contradict each other, or one is out of its range.
    #[error("key `{key}`: found {found}, wanted {wanted}")]
    Range {
        /// The dotted key.
        key: String,
        /// The given value.
        found: String,
        /// The valid values.
        wanted: String,
    },
    /// There is no such game.
    #[error(transparent)]
    Game(#[from] lapwing_env::UnknownGame),
    /// The game does not have such an option.
    #[error(transparent)]
    Options(#[from] lapwing_env::OptionsError),
}

impl ConfigError {
    /// Makes a line of the parser's message: place, text and problem.
    pub fn syntax(origin: &str, text: &str, error: &toml::de::Error) -> ConfigError {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        let line: String = text.lines().nth(number - 1).unwrap_or_default().to_owned();
        let shown: String = line.trim().chars().take(60).collect();
        ConfigError::Invalid(format!(
            "{origin} is not valid TOML: line {number}, `{shown}`: {}",
            error.message()
        ))
    }

    /// Makes the error of a key with a value that is not of its type.
    pub(super) fn value(key: &str, origin: &str, found: &Value, wanted: &str) -> ConfigError {
        ConfigError::Invalid(format!(
            "key `{key}` in {origin}: found {found}, wanted {wanted}"
        ))
    }
}

impl From<SettingError> for ConfigError {
    fn from(error: SettingError) -> ConfigError {
        match error {
            SettingError::Range { key, found, wanted } => ConfigError::Range { key, found, wanted },
            SettingError::Game(error) => ConfigError::Game(error),
            SettingError::Options(error) => ConfigError::Options(error),
        }
    }
}
