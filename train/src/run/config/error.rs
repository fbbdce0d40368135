//! What can be wrong with a config.

use std::path::PathBuf;

use thiserror::Error;

/// A config that cannot be read, or that asks for something that cannot be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No preset has this name.
    #[error(
        "unknown preset `{name}`{suggestion}; the presets are {known} (the name of a file ends in .toml)"
    )]
    UnknownPreset {
        /// The name that was given.
        name: String,
        /// " (did you mean ...?)", or empty.
        suggestion: String,
        /// The names there are.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read the config {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The text is not TOML.
    #[error("{origin} is not valid TOML: {reason}")]
    Syntax {
        /// The file, or the preset.
        origin: String,
        /// What the parser says.
        reason: String,
    },
    /// A setting is not of the form KEY=VALUE.
    #[error("--set takes KEY=VALUE, such as train.lr=0.001, but was given `{given}`")]
    Setting {
        /// What was given.
        given: String,
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
    /// Whether what was asked for is wrong, and not a file at fault.
    pub fn is_usage(&self) -> bool {
        !matches!(self, ConfigError::Unreadable { .. })
    }
}
