//! Errors of configs.

use std::path::PathBuf;

use lapwing_play::SettingError;
use thiserror::Error;

/// A config that cannot be read, or that has an invalid value.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no preset of this name.
    #[error(
        "unknown preset `{name}`{suggestion}; the presets and games are {known}; lapwing games lists variants, and \
         the name of a file ends in .toml"
    )]
    UnknownPreset {
        /// The given name.
        name: String,
        /// " (did you mean ...?)", or empty.
        suggestion: String,
        /// The existing names.
        known: String,
    },
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
    #[error("cannot read the config {0}")]
    Unreadable(lapwing_model::ModelError),
    /// The text is not TOML.
    #[error("{origin} is not valid TOML: {reason}")]
    Syntax {
        /// The file or the preset.
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
    /// There is no setting of this name.
    #[error("unknown key `{key}` in {origin}{suggestion}; {place} {known}")]
    UnknownKey {
        /// The given dotted key.
        key: String,
        /// Where it was given.
        origin: String,
        /// " (did you mean ...?)", or empty.
        suggestion: String,
        /// "the keys of `[train]` are", or "the sections are".
        place: String,
        /// The existing names.
        known: String,
    },
    /// A setting has an invalid value.
    #[error("key `{key}` in {origin}: found {found}, wanted {wanted}")]
    Value {
        /// The dotted key.
        key: String,
        /// Where it was given.
        origin: String,
        /// The given value.
        found: String,
        /// The valid values.
        wanted: String,
    },
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
    /// The target modules match no layer.
    #[error("key `lora.targets`: {reason}")]
    Targets {
        /// The unknown name and the problem.
        reason: lapwing_model::ModelError,
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

    /// Returns whether the argument is wrong, in contrast to a file that cannot be read.
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
