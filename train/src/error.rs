//! What can go wrong in a run. Each text names the thing and, where there is one, the cure.

use std::path::{Path, PathBuf};

use lapwing_env::{GameError, OptionsError, UnknownGame};
use lapwing_model::{HubError, ModelError, Repository};
use lapwing_tensor::GpuError;

use crate::play::players::api::error::ApiError;
use crate::record::RecordError;
use crate::run::checkpoint::CheckpointError;
use crate::run::config::ConfigError;
use crate::run::memory::{MemoryError, shorter};

/// An error of a run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A game that does not exist.
    #[error(transparent)]
    UnknownGame(#[from] UnknownGame),
    /// An option that the game does not take.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A game that cannot go on.
    #[error(transparent)]
    Game(#[from] GameError),
    /// A game whose scenes cannot be divided as they are.
    #[error(
        "{game}: found no scene {} in ten thousand: give the game more scenes (size, probabilities), or one only",
        if *.kept { "for the evaluation" } else { "to train on" }
    )]
    NoScene {
        /// The game.
        game: String,
        /// Whether it was looked for for the evaluation.
        kept: bool,
    },
    /// The model, its tokenizer, its chat template or the adapter.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A template of prompts.
    #[error("the prompt template {}: {problem}", path.display())]
    Prompt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The repository of the model cannot be had.
    #[error(transparent)]
    Hub(Box<HubError>),
    /// The directory of the model does not exist.
    #[error(
        "there is no model directory {dir}: wanted one with config.json, *.safetensors and tokenizer.json (--model, \
         model.dir){more}",
        dir = .0.display(), more = name_of_a_repository(.0)
    )]
    NoModel(PathBuf),
    /// The directory of the adapter does not exist.
    #[error(
        "there is no adapter directory {0}: wanted one with adapter_config.json and adapter_model.safetensors"
    )]
    NoAdapter(PathBuf),
    /// The device has not enough memory for what was asked.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Prompt and reply are longer than the model was made for.
    #[error(
        "a prompt may have {prompt} tokens and its reply {reply} (policy.max_new_tokens), and the model was made for {most} \
         together (max_position_embeddings): {}", shorter(*.prompt, *.most)
    )]
    TooLong {
        /// Tokens of the longest prompt.
        prompt: usize,
        /// Tokens of the longest reply.
        reply: usize,
        /// What the model was made for.
        most: usize,
    },
    /// A game that value learners cannot see.
    #[error(
        "{0} has no board as numbers, which dqn and pqn learn from (frozen-lake and snake have one): choose another game, or \
         learner = \"ms-grpo\""
    )]
    NoPlanes(String),
    /// Somebody is to play by a network that nobody names.
    #[error(
        "a network of {0} is to play, and value.network names none: name the directory of the run that trained it"
    )]
    NoNetwork(&'static str),
    /// A network that cannot be read, or is another.
    #[error("the network {}: {problem}", path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A language model is wanted where a value learner was trained.
    #[error(
        "learner = \"{0}\" has no language model: train, eval and play take such a run, and nothing else does"
    )]
    NoLanguage(&'static str),
    /// A checkpoint that cannot be gone on from.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Update after update was dropped.
    #[error(
        "training has diverged: the last {0} updates were dropped because loss or gradient was no finite number; go on from \
         an earlier state (--adapter, or --model if all weights were trained) with a smaller train.lr"
    )]
    Diverged(usize),
    /// A critic that is lost.
    #[error(
        "training has diverged: what the critic says of a state is no finite number; go on from an earlier state (--adapter) \
         with a smaller critic.lr"
    )]
    Critic,
    /// What the run tells could not be kept.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The device does not do what it is told: its results are not to be trusted.
    #[error(
        "the driver {driver} of the GPU {adapter} computes wrong numbers in the kernel {kernel}: {what}; choose another \
         GPU, or update the driver"
    )]
    WrongNumbers {
        /// The adapter.
        adapter: String,
        /// Its driver and version.
        driver: String,
        /// The kernel that was caught first.
        kernel: &'static str,
        /// Where, and what it should have been.
        what: String,
    },
    /// The embedded base could not be put into a temporary directory.
    #[error(
        "cannot unpack the built-in base model: {0}; is the temporary directory writable (TMPDIR)?"
    )]
    Unpack(std::io::Error),
    /// A model behind an API.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Episodes that cannot be imitated.
    #[error("cannot imitate: {0}")]
    Imitation(String),
    /// A person who plays could not be read from or written to.
    #[error(transparent)]
    Terminal(#[from] std::io::Error),
    /// A person who plays does not want to go on.
    #[error("left")]
    Left,
    /// A tokenizer could not be made or read.
    #[error("tokenizer: {0}")]
    Vocabulary(String),
}

impl Error {
    /// Whether what was learned is of no use any more: a metric or the model's output is no number.
    pub fn is_divergence(&self) -> bool {
        matches!(
            self,
            Error::Critic
                | Error::Record(RecordError::NotFinite { .. })
                | Error::Model(ModelError::NotNumbers)
        )
    }
}

impl From<HubError> for Error {
    fn from(error: HubError) -> Error {
        Error::Hub(Box::new(error))
    }
}

/// For a directory of the form `name` or `owner/name`, what a repository would be called.
fn name_of_a_repository(dir: &Path) -> String {
    let text = dir.to_string_lossy();
    if Repository::parse(&text).is_some() {
        return format!("; as a repository of the Hugging Face hub: --model {text}, or model.repo");
    }
    match Repository::parse(&format!("owner/{text}")) {
        Some(_) => format!("; a repository of the Hugging Face hub is named OWNER/{text}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    /// The cure is one that cures.
    #[test]
    fn too_long_a_prompt_is_not_cured_by_a_shorter_reply() {
        let told = |prompt, reply| {
            let most = 256;
            Error::TooLong {
                prompt,
                reply,
                most,
            }
            .to_string()
        };
        assert_snapshot!(told(200, 100), @"a prompt may have 200 tokens and its reply 100 (policy.max_new_tokens), and the model was made for 256 together (max_position_embeddings): set policy.max_new_tokens=56 or less");
        assert_snapshot!(told(438, 1), @"a prompt may have 438 tokens and its reply 1 (policy.max_new_tokens), and the model was made for 256 together (max_position_embeddings): no reply fits beside such a prompt: make the game's board smaller (game.options), or use a model for longer texts");
    }
}
