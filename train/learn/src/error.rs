//! Errors of learning. Each text names the thing and, where there is one, the fix.

use std::path::PathBuf;

use lapwing_model::ModelError;
use lapwing_play::PlayError;
use lapwing_tensor::GpuError;

/// An error of a training step or of a value network.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// Playing the episodes failed.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// The model or its tokenizer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A network player was requested without weights.
    #[error(
        "a network of {0} is to play, and value.network names none: name the directory of the run that trained it"
    )]
    NoNetwork(&'static str),
    /// A network that cannot be read, or has other layers.
    #[error("the network {}: {problem}", path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The critic has diverged.
    #[error(
        "training has diverged: what the critic says of a state is no finite number; go on from an earlier state (--adapter) \
         with a smaller critic.lr"
    )]
    Critic,
    /// Episodes that cannot be imitated.
    #[error("cannot imitate: {0}")]
    Imitation(String),
}
