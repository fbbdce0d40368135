//! What can be wrong with a config.

use std::path::PathBuf;

use lapwing_play::SettingError;
use thiserror::Error;

/// A config that cannot be read, or that asks for something that cannot be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No preset has this name.
    #[error(
        "unknown preset `{name}`{suggestion}; the presets and games are {known}; lapwing games lists variants, and \
         the name of a file ends in .toml"
    )]
    UnknownPreset {
        /// The name that was given.
        name: String,
        /// " (did you mean ...?)", or empty.
        suggestion: String,
        /// The names there are.
        known: String,
    },
    /// What was asked for is no config.
    #[error("{} {is}: {cure}", .path.display())]
    Place {
        /// What was asked for.
        path: PathBuf,
        /// What it is.
        is: &'static str,
        /// What to do with it, or what was wanted.
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
        /// What the parser says.
        reason: String,
    },
    /// A setting is not of the form KEY=VALUE.
    #[error("--set takes KEY=VALUE, such as train.lr=0.001, but was given `{given}`{meant}")]
    Setting {
        /// What was given.
        given: String,
        /// " (did you mean ...?)", or empty.
        meant: String,
    },
    /// No knob has this name.
    #[error("unknown key `{key}` in {origin}{suggestion}; {place} {known}")]
    UnknownKey {
        /// The dotted name that was given.
        key: String,
        /// Where it was given.
        origin: String,
        /// " (did you mean ...?)", or empty.
        suggestion: String,
        /// "the keys of `[train]` are", or "the sections are".
        place: String,
        /// The names there are.
        known: String,
    },
    /// A knob has a value that it cannot take.
    #[error("key `{key}` in {origin}: found {found}, wanted {wanted}")]
    Value {
        /// The dotted name of the knob.
        key: String,
        /// Where it was given.
        origin: String,
        /// The value that was given.
        found: String,
        /// What it may be.
        wanted: String,
    },
    /// Two knobs contradict each other, or one is out of its range.
    #[error("key `{key}`: found {found}, wanted {wanted}")]
    Range {
        /// The dotted name of the knob.
        key: String,
        /// The value that was given.
        found: String,
        /// What it may be.
        wanted: String,
    },
    /// The layers to adapt are none.
    #[error("key `lora.targets`: {reason}")]
    Targets {
        /// What is wrong with which name.
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
    /// What the parser says, in a line: where, what is there, and what is wrong with it.
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

    /// Whether what was asked for is wrong, and not a file at fault.
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
