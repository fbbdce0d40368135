//! Errors of a run. Each text names the object and, if there is one, the fix.

use std::path::Path;

use lapwing_env::GameError;
use lapwing_learn::LearnError;
use lapwing_model::{ModelError, Repository};
use lapwing_tensor::GpuError;

use crate::base::files::gguf_in;
use crate::checkpoint::CheckpointError;
use crate::config::ConfigError;
use crate::memory::{MemoryError, shorter};
use crate::record::{RecordError, TRAINED_OPTIONS};
use lapwing_play::{PlayError, SettingError};

/// An error of a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Playing failed.
    #[error(transparent)]
    Play(PlayError),
    /// Training failed.
    #[error(transparent)]
    Learn(LearnError),
    /// The model, its tokenizer, its chat template or the adapter.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The model or the adapter does not exist, or cannot be used for this.
    #[error("{0}")]
    Unusable(String),
    /// The device has too little memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A checkpoint that cannot be resumed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Too many consecutive updates were dropped.
    #[error(
        "training has diverged: the last {0} updates were dropped because loss or gradient was not finite; start from \
         an earlier state ({trained}) with a smaller train.lr",
        trained = TRAINED_OPTIONS
    )]
    Diverged(usize),
    /// A record could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The device computes wrong results.
    #[error("{0}")]
    WrongNumbers(String),
    /// A tokenizer could not be made or read.
    #[error("tokenizer: {0}")]
    Vocabulary(String),
}

impl Error {
    /// Makes the error of a model directory that does not exist.
    pub(crate) fn no_model(dir: &Path) -> Error {
        let text = dir.to_string_lossy();
        if let Some(file) = gguf_in(dir) {
            let file = file.display();
            return Error::Unusable(format!(
                "{text} has no config.json, but holds a GGUF file: name that (--model {file})"
            ));
        }
        if let (true, Some(parent)) = (dir.is_file(), dir.parent()) {
            let parent = parent.display();
            return Error::Unusable(format!(
                "{text} is a file; name its directory: --model {parent}"
            ));
        }
        let more = match Repository::parse(&text) {
            Some(_) => format!("; as a repository of the Hugging Face hub: --model {text}@main"),
            None if Repository::parse(&format!("owner/{text}")).is_some() => {
                format!("; a repository of the Hugging Face hub is named OWNER/{text}")
            }
            None => String::new(),
        };
        Error::Unusable(format!(
            "there is no model directory {}: wanted one with config.json, *.safetensors and tokenizer.json, or a GGUF file \
             (--model, model.dir){more}",
            dir.display()
        ))
    }

    /// Makes the error of a prompt and a reply of this many tokens that exceed the `most` of the model's context.
    pub(crate) fn too_long(prompt: usize, reply: usize, most: usize) -> Error {
        Error::Unusable(format!(
            "a prompt may have {prompt} tokens and its reply {reply} (policy.max_new_tokens), and the model was made for {most} \
             together (max_position_embeddings): {}",
            shorter(prompt, most)
        ))
    }

    /// Returns whether the trained weights are useless: a metric or the model's output is not finite.
    pub fn is_divergence(&self) -> bool {
        matches!(
            self,
            Error::Learn(LearnError::Critic)
                | Error::Record(RecordError::NotFinite { .. })
                | Error::Model(ModelError::NotNumbers)
        )
    }
}

// Errors of lower packages stay the same, however many packages they passed through.
impl From<PlayError> for Error {
    fn from(error: PlayError) -> Error {
        match error {
            PlayError::Model(error) => Error::Model(error),
            PlayError::Gpu(error) => Error::Gpu(error),
            PlayError::Setting(error) => Error::Config(error.into()),
            other => Error::Play(other),
        }
    }
}

impl From<LearnError> for Error {
    fn from(error: LearnError) -> Error {
        match error {
            LearnError::Play(error) => error.into(),
            LearnError::Model(error) => Error::Model(error),
            LearnError::Gpu(error) => Error::Gpu(error),
            other => Error::Learn(other),
        }
    }
}

impl From<GameError> for Error {
    fn from(error: GameError) -> Error {
        Error::Play(error.into())
    }
}

impl From<SettingError> for Error {
    fn from(error: SettingError) -> Error {
        Error::Config(error.into())
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    /// The suggested fix works.
    #[test]
    fn too_long_a_prompt_is_not_cured_by_a_shorter_reply() {
        let told = |prompt, reply| Error::too_long(prompt, reply, 256).to_string();
        assert_snapshot!(told(200, 100), @"a prompt may have 200 tokens and its reply 100 (policy.max_new_tokens), and the model was made for 256 together (max_position_embeddings): set policy.max_new_tokens=56 or less");
        assert_snapshot!(told(438, 1), @"a prompt may have 438 tokens and its reply 1 (policy.max_new_tokens), and the model was made for 256 together (max_position_embeddings): no reply fits beside such a prompt: make the game's board smaller (game.options), or use a model for longer texts");
    }
}
