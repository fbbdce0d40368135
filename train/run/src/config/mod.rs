//! All settings of a run, their defaults and the reasons for these.
//!
//! The defaults are the paper's (arXiv 2508.10839) where it states them, otherwise ours. A preset under
//! `train/presets/` has only its differences. To add a setting, add a line to the section that uses it.

mod check;
mod error;
mod load;
mod origin;
mod reference;
mod request;
mod resolved;
#[cfg(test)]
mod tests;
mod unused;

use std::path::PathBuf;

use lapwing_env::OptionRange::{Real, Whole};
use lapwing_learn::config::{
    CreditConfig, CriticConfig, DqnConfig, LearnerKind, PqnConfig, TrainConfig, ValueConfig,
};
use lapwing_model::{LoraConfig, Repository};
use lapwing_play::config::{GameConfig, MixConfig, PolicyConfig, optional};
use lapwing_tensor::WeightFormat;
use serde::{Deserialize, Serialize};

use crate::base::source::ModelSource;

pub use error::ConfigError;
pub use lapwing_learn::config::MOST_EPISODES;
pub use load::key_of_name;
pub use origin::Origin;
pub use reference::{explain, keys};
pub use request::{PRESETS, PathKind, Preset};
pub use resolved::Resolved;

lapwing_env::options! {
    /// The config of a run. A run directory holds it, and training from it makes the same run again.
    pub struct Config;
    /// Names the run directory `runs/NAME-1`, so it has no slashes. If omitted, the name of the preset, file or game.
    name: String = "run".to_owned();
    /// The learner: `ms-grpo` for a language model; `dqn` or `pqn` for a network without language, for comparison
    /// (`lapwing help value-learners`).
    learner: LearnerKind = LearnerKind::default();
    /// The language model.
    model: ModelChoice = ModelChoice::default();
    /// The adapter to train, unless `train.weights` is `all`.
    lora: LoraConfig = LoraConfig::default();
    /// The game.
    game: GameConfig = GameConfig::default();
    /// Games mixed into training.
    mix: Vec<MixConfig> = Vec::new();
    /// Prompts, replies and sampling.
    policy: PolicyConfig = PolicyConfig::default();
    /// The algorithm.
    train: TrainConfig = TrainConfig::default();
    /// Imitation before the first step.
    warmup: WarmupConfig = WarmupConfig::default();
    /// The network of `dqn` and `pqn`, and its exploration.
    value: ValueConfig = ValueConfig::default();
    /// The settings of `dqn`.
    dqn: DqnConfig = DqnConfig::default();
    /// The settings of `pqn`.
    pqn: PqnConfig = PqnConfig::default();
    /// Credit assignment.
    credit: CreditConfig = CreditConfig::default();
    /// The critic, for `credit.method = "critic"`.
    critic: CriticConfig = CriticConfig::default();
    /// Evaluations.
    eval: EvalConfig = EvalConfig::default();
    /// Checkpoints.
    checkpoint: CheckpointConfig = CheckpointConfig::default();
    /// Records in addition to the metrics.
    record: RecordConfig = RecordConfig::default();
}

lapwing_env::options! {
    /// The language model.
    pub struct ModelChoice;
    /// A directory with `config.json`, `*.safetensors` and `tokenizer.json`, in Hugging Face's layout, or a GGUF file.
    /// Empty: the built-in model, so that training needs no download. Refused beside `model.repo`.
    dir: Option<PathBuf> = None, with "optional";
    /// A repository of the Hugging Face hub: `owner/name`, or `owner/name@revision` with a branch, tag or
    /// commit. `owner/name:Q4_K_M` is a GGUF file of it, by its encoding or its name. It comes from the local cache, or is downloaded. A run records the commit here, so that its config
    /// always means the same model. Empty: none. Refused beside `model.dir`.
    repo: Option<Repository> = None, with "optional";
    /// Rounds the weights of a model to 8 or 4 bits when it is loaded, for a device with little memory: 9 or 5 bits a
    /// weight with their scales, instead of 16. Weights that are quantised in a GGUF file stay as they are. Needs
    /// train.weights = "lora". none: our choice.
    quantise: Quantise = Quantise::None;
    /// A directory with `tokenizer.json`, and `tokenizer_config.json` for the chat template. They are used instead of those
    /// of the model. Empty: the model's own.
    tokenizer: Option<PathBuf> = None, with "optional";
    /// A directory with a PEFT adapter to start from, for playing or training. The KL reference is then the model with
    /// this adapter at the start, and rank, alpha and layers are the adapter's instead of those of `[lora]`. Empty:
    /// none.
    adapter: Option<PathBuf> = None, with "optional";
}

/// The rounding of a model's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantise {
    /// As stored.
    None,
    /// To 8 bits.
    Q8,
    /// To 4 bits; the embedding and the head to 8.
    Q4,
}

impl Quantise {
    pub(crate) fn format(self) -> Option<WeightFormat> {
        match self {
            Quantise::None => None,
            Quantise::Q8 => Some(WeightFormat::Q8),
            Quantise::Q4 => Some(WeightFormat::Q4),
        }
    }
}

impl From<ModelSource> for ModelChoice {
    fn from(source: ModelSource) -> ModelChoice {
        let mut choice = ModelChoice::default();
        match source {
            ModelSource::BuiltIn => (),
            ModelSource::Local(dir) => choice.dir = Some(dir),
            ModelSource::Repository(repository) => choice.repo = Some(repository),
        }
        choice
    }
}

impl ModelChoice {
    /// Returns the source of the model.
    ///
    /// # Errors
    /// If both a directory and a repository are given.
    pub fn source(&self) -> Result<ModelSource, ConfigError> {
        match (&self.dir, &self.repo) {
            (None, None) => Ok(ModelSource::BuiltIn),
            (Some(dir), None) => Ok(ModelSource::Local(dir.clone())),
            (None, Some(repository)) => Ok(ModelSource::Repository(repository.clone())),
            (Some(dir), Some(repository)) => {
                let found = format!("{:?}", repository.to_string());
                let wanted = format!("none beside model.dir, which is {dir:?}");
                Err(ConfigError::range("model.repo", found, wanted))
            }
        }
    }
}

lapwing_env::options! {
    /// The warm-up: the model imitates episodes before the first step.
    pub struct WarmupConfig;
    /// Updates, each on eight episodes; 0: no warm-up. For a model whose replies cannot be read, or to begin with another
    /// player's moves. `--warmup` sets 12. The result is in the directory `warmup` of the run, and is the KL reference, as
    /// an adapter of `model.adapter` would be.
    updates: usize = 0, in Whole(0, 1_000_000);
    /// Who plays the episodes: `random`, which teaches the form of replies and not the game; `scripted`, the game's own
    /// player; or a file that `lapwing play --keep` wrote.
    player: String = "random".to_owned();
    /// Episodes, on training scenes. 24: enough to learn the form of replies.
    episodes: usize = 24, in Whole(1, MOST_EPISODES);
    /// Peak learning rate: a linear rise, then a cosine. 0: 2e-4, or 2e-3 for the built-in model.
    lr: f64 = 0.0, in Real(0.0, 1.0);
}

impl WarmupConfig {
    /// Returns whether the episodes come from a file.
    pub fn has_file(&self) -> bool {
        !["random", "scripted"].contains(&&*self.player)
    }
}

lapwing_env::options! {
    /// Evaluations: sampled play on held-out scenes.
    pub struct EvalConfig;
    /// Episodes, each on its own scene. The paper: 50.
    episodes: usize = 50, in Whole(1, MOST_EPISODES);
    /// Training steps between two evaluations; 0: only before the first step and after the last. 50: our
    /// choice.
    every: usize = 50;
    /// The seed of the scenes, 0 to 2^63 - 1. Runs with the same seed play the same scenes, so their results can be compared.
    seed: u64 = 1;
    /// Sampling temperature: 0, which is greedy, or 0.001 to 1000. 1: the trained policy itself.
    temperature: f64 = 1.0;
}

impl EvalConfig {
    /// Returns whether an evaluation comes before this step.
    pub fn is_due(&self, step: usize) -> bool {
        step == 0 || self.every > 0 && step.is_multiple_of(self.every)
    }
}

lapwing_env::options! {
    /// When checkpoints are saved, in addition to every evaluation, the end of the run, and errors.
    pub struct CheckpointConfig;
    /// Training steps between two checkpoints; 0: none by steps. 0, because minutes better describe the work at risk.
    every: usize = 0;
    /// Minutes between checkpoints; 0: none by time. 10: an acceptable loss.
    minutes: f64 = 10.0, in Real(0.0, 1e6);
    /// The number of latest checkpoints to keep, beside that of the best evaluation. 2: one more in case the latest is
    /// damaged.
    keep: usize = 2, in Whole(1, 1000);
}

impl CheckpointConfig {
    /// Returns whether a checkpoint is due after this step, this many seconds after the last one.
    pub(crate) fn is_due(&self, step: usize, seconds: f64) -> bool {
        self.every > 0 && step.is_multiple_of(self.every)
            || self.minutes > 0.0 && seconds >= 60.0 * self.minutes
    }
}

lapwing_env::options! {
    /// Records in addition to `metrics.jsonl`.
    pub struct RecordConfig;
    /// Complete episodes in `episodes.jsonl`, of each evaluation and of each group of the step after it. 4: enough for
    /// an impression. No effect with `all_episodes`.
    episodes: usize = 4;
    /// Keep every episode of every step. Off, because a long run writes gigabytes.
    all_episodes: bool = false;
    /// Also write event files for TensorBoard. Off, because `lapwing export` makes them from `metrics.jsonl` at any
    /// time.
    tensorboard: bool = false;
}
