//! Errors of configs.

use lapwing_play::SettingError;
use thiserror::Error;
use toml::Value;

/// A config that cannot be read, or that has an invalid value.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(lapwing_model::ModelError),
    /// A name, a path or a key is unknown, a text is not TOML, or a value has the wrong type.
    #[error("{0}")]
    Invalid(String),
    /// Two settings contradict each other, one is out of its range, or there is no such game or option.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

impl ConfigError {
    /// Makes a line of the parser's message: place, text and problem.
    pub fn syntax(origin: &str, text: &str, error: &toml::de::Error) -> ConfigError {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        let line: String = text.lines().nth(number - 1).unwrap_or_default().to_owned();
        let shown: String = line.trim().chars().take(60).collect();
        let message = error.message();
        // The parser guesses the type of a text without quotes.
        let guesses = ["invalid", "string", "unexpected"];
        let is_guess = guesses.iter().any(|guess| message.starts_with(guess));
        let hint = "a text needs quotes, and only a comment may follow a value: ";
        let hint = if is_guess { hint } else { "" };
        ConfigError::Invalid(format!(
            "{origin} is not valid TOML: line {number}, `{shown}`: {hint}{message}"
        ))
    }

    /// Makes the error of a value that contradicts another setting, or is out of its range.
    pub fn range(key: &str, found: impl ToString, wanted: impl Into<String>) -> ConfigError {
        ConfigError::Setting(SettingError::Range {
            key: key.to_owned(),
            found: found.to_string(),
            wanted: wanted.into(),
        })
    }

    /// Makes the error of a key with a value that is not of its type.
    pub(super) fn value(key: &str, origin: &str, found: &Value, wanted: &str) -> ConfigError {
        ConfigError::Invalid(format!(
            "key `{key}` in {origin}: found {found}, wanted {wanted}"
        ))
    }
}
