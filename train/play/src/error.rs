//! Errors of play. Each text names the thing and, where there is one, the fix.

use lapwing_env::{GameError, OptionsError};
use lapwing_model::ModelError;
use lapwing_tensor::GpuError;

/// An error while episodes are prepared or played.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// A game that cannot continue.
    #[error(transparent)]
    Game(#[from] GameError),
    /// A game whose scenes cannot be split into training and held-out scenes.
    #[error(
        "{game}: found no scene {} in ten thousand: give the game more scenes (size, probabilities), or one only",
        if *.kept { "for the evaluation" } else { "to train on" }
    )]
    NoScene {
        /// The game.
        game: String,
        /// Whether a held-out scene was needed.
        kept: bool,
    },
    /// A game without feature planes, played by a network.
    #[error(
        "{0} has no board as numbers, which dqn and pqn learn from (frozen-lake and snake have one): choose another game, or \
         learner = \"ms-grpo\""
    )]
    NoPlanes(String),
    /// The model, its tokenizer, its chat template or the adapter.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A prompt template.
    #[error("the prompt template {0}")]
    Prompt(String),
    /// A config section that names no playable game.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A model behind an API.
    #[error("{0}")]
    Api(String),
    /// The device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The moves of a person cannot be read, or an episode cannot be printed.
    #[error("the terminal")]
    Terminal(#[from] std::io::Error),
    /// The player left the game.
    #[error("left")]
    Left,
}

/// A config section that names no playable game, or has a value out of its range.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// A value out of its range.
    #[error("key `{key}`: found {found}, wanted {wanted}")]
    Range {
        /// The dotted key.
        key: String,
        /// The value.
        found: String,
        /// The range.
        wanted: String,
    },
    /// There is no such game, or it does not have such an option.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

impl SettingError {
    pub(crate) fn range(
        key: impl Into<String>,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> SettingError {
        let (key, found, wanted) = (key.into(), found.into(), wanted.into());
        SettingError::Range { key, found, wanted }
    }
}
