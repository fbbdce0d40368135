//! Errors of training steps, imitation and value networks.

use lapwing_model::ModelError;
use lapwing_play::PlayError;
use lapwing_tensor::GpuError;

/// An error of a training step, of imitation or of a value network.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// An error while playing.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// An error of the model or its tokenizer.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An error of the device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// A network file that is not given, cannot be read, or has other layers.
    #[error("{0}")]
    Network(String),
    /// A value of the critic is not finite.
    #[error(
        "training has diverged: a value of the critic is not finite; continue from an earlier adapter (--adapter; \
         --model if all weights were trained) with a smaller critic.lr"
    )]
    Critic,
    /// Imitation of the given episodes is impossible.
    #[error("cannot imitate: {0}")]
    Imitation(String),
}
