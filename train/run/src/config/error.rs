//! Errors of configs.

use std::path::PathBuf;

use lapwing_play::SettingError;
use thiserror::Error;

/// A config that cannot be read or is invalid.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No preset has this name.
    #[error(
        "unknown preset `{name}`{suggestion}; the presets and games are {known}; lapwing games lists variants, and \
         the name of a file ends in .toml"
    )]
    UnknownPreset {
        /// The given name.
        name: String,
        /// " (did you mean ...?)", or empty.
        suggestion: String,
        /// The known names.
        known: String,
    },
    /// The requested path is not a config.
    #[error("{} {is}: {cure}", .path.display())]
    Place {
        /// The path.
        path: PathBuf,
        /// What it is.
        is: &'static str,
        /// The fix, or what was expected.
        cure: String,
    },
    /// The file cannot be read.
    #[error("cannot read the config {0}")]
    Unreadable(lapwing_model::ModelError),
    /// The text is not TOML.
    #[error("{origin} is not valid TOML: {reason}")]
    Syntax {
        /// The file, or the preset.
        origin: String,
        /// The parser's message.
        reason: String,
    },
    /// A setting is not of the form KEY=VALUE.
    #[error("--set takes KEY=VALUE, such as train.lr=0.001, but was given `{given}`{meant}")]
    Setting {
        /// The given text.
        given: String,
        /// " (did you mean ...?)", or empty.
        meant: String,
    },
    /// No setting has this name.
    #[error("unknown key `{key}` in {origin}{suggestion}; {place} {known}")]
    UnknownKey {
        /// The given dotted name.
        key: String,
        /// Its origin, such as a file or `--set`.
        origin: String,
        /// " (did you mean ...?)", or empty.
        suggestion: String,
        /// `the keys of [train] are`, or `at the top are`.
        place: String,
        /// The known names.
        known: String,
    },
    /// A setting does not accept this value.
    #[error("key `{key}` in {origin}: found {found}, wanted {wanted}")]
    Value {
        /// The dotted name of the setting.
        key: String,
        /// Its origin, such as a file or `--set`.
        origin: String,
        /// The given value.
        found: String,
        /// The allowed values.
        wanted: String,
    },
    /// Two settings contradict each other, or one is out of its range.
    #[error("key `{key}`: found {found}, wanted {wanted}")]
    Range {
        /// The dotted name of the setting.
        key: String,
        /// The given value.
        found: String,
        /// The allowed values.
        wanted: String,
    },
    /// `lora.targets` is invalid.
    #[error("key `lora.targets`: {reason}")]
    Targets {
        /// The invalid name and the reason.
        reason: lapwing_model::ModelError,
    },
    /// No game has this name.
    #[error(transparent)]
    Game(#[from] lapwing_env::UnknownGame),
    /// The game refuses an option.
    #[error(transparent)]
    Options(#[from] lapwing_env::OptionsError),
}

impl ConfigError {
    /// Converts a parser error to one line: the line number, its text and the parser's message.
    pub(super) fn syntax(origin: &str, text: &str, error: &toml::de::Error) -> ConfigError {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or_default();
        let number = before.matches('\n').count() + 1;
        let line: String = text.lines().nth(number - 1).unwrap_or_default().to_owned();
        let shown: String = line.trim().chars().take(60).collect();
        ConfigError::Syntax {
            origin: origin.to_owned(),
            reason: format!("line {number}, `{shown}`: {}", error.message()),
        }
    }

    /// Whether the user's request is wrong, instead of a file being unreadable.
    pub fn is_usage(&self) -> bool {
        !matches!(self, ConfigError::Unreadable(_))
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
