//! The config of a run: every setting, its default and the reason for the default.
//!
//! The defaults are those of the paper (arXiv 2508.10839), or ours where the paper is silent. A preset in `train/presets/`
//! states only its differences. To add a setting, add a field here and use it.

mod check;

mod error;
mod load;
mod request;
mod resolved;
#[cfg(test)]
mod tests;
mod unused;

use std::path::PathBuf;

use lapwing_learn::config::{
    CreditConfig, CriticConfig, DqnConfig, LearnerKind, PqnConfig, TrainConfig, ValueConfig,
};
use lapwing_model::{LoraConfig, Repository};
use lapwing_play::config::{GameConfig, MixConfig, PolicyConfig};
use serde::{Deserialize, Serialize};

use crate::base::source::ModelSource;

pub use check::MOST_EPISODES;
pub use error::ConfigError;
pub use request::{PRESETS, PathKind, Preset};
pub use resolved::{Origin, Resolved};

/// All settings of a run. The copy in the run directory repeats the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Names the run directory. Default: the name of the preset, or the stem of the file.
    pub name: String,
    /// Learner: `ms-grpo` trains a language model; `dqn` and `pqn` train a network on feature planes of the board
    /// (docs/value-learners.md).
    pub learner: LearnerKind,
    /// The language model.
    pub model: ModelChoice,
    /// The trained adapter. Without effect if `train.weights` is `all`.
    pub lora: LoraConfig,
    /// The game.
    pub game: GameConfig,
    /// Further games for training.
    pub mix: Vec<MixConfig>,
    /// How the model plays.
    pub policy: PolicyConfig,
    /// How the model learns.
    pub train: TrainConfig,
    /// The network of `dqn` and `pqn`, and how it plays.
    pub value: ValueConfig,
    /// How `dqn` learns.
    pub dqn: DqnConfig,
    /// How `pqn` learns.
    pub pqn: PqnConfig,
    /// Credit assignment: the advantage of each turn.
    pub credit: CreditConfig,
    /// The critic of `credit.method = "critic"`.
    pub critic: CriticConfig,
    /// Evaluation.
    pub eval: EvalConfig,
    /// Checkpoints, from which the run resumes.
    pub checkpoint: CheckpointConfig,
    /// Records beside the metrics.
    pub record: RecordConfig,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "run".to_owned(),
            learner: LearnerKind::default(),
            model: ModelChoice::default(),
            lora: LoraConfig::default(),
            game: GameConfig::default(),
            mix: Vec::new(),
            policy: PolicyConfig::default(),
            train: TrainConfig::default(),
            value: ValueConfig::default(),
            dqn: DqnConfig::default(),
            pqn: PqnConfig::default(),
            credit: CreditConfig::default(),
            critic: CriticConfig::default(),
            eval: EvalConfig::default(),
            checkpoint: CheckpointConfig::default(),
            record: RecordConfig::default(),
        }
    }
}

/// The language model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelChoice {
    /// A directory with `config.json`, `*.safetensors` and `tokenizer.json` in Hugging Face's format.
    /// Empty: the small built-in base model, so that training needs no download.
    #[serde(with = "optional_path")]
    pub dir: Option<PathBuf>,
    /// A repository of the Hugging Face hub instead: `owner/name` or `owner/name@revision`. The revision is a branch, a tag
    /// or a commit. Read from the local cache, or downloaded if it is not there. A run stores the commit here, so that
    /// its config keeps naming the same files. Empty: none.
    #[serde(with = "repository")]
    pub repo: Option<Repository>,
    /// A directory with a PEFT adapter to play with or to continue training. The reference is then the model with this
    /// adapter as loaded. Rank, alpha and layers are the adapter's, and `[lora]` has no effect. Empty: none.
    #[serde(with = "optional_path")]
    pub adapter: Option<PathBuf>,
}

impl ModelChoice {
    /// Returns the source of the model.
    ///
    /// # Errors
    /// If both a directory and a repository are given.
    pub fn source(&self) -> Result<ModelSource, ConfigError> {
        match (&self.dir, &self.repo) {
            (None, None) => Ok(ModelSource::BuiltIn),
            (Some(dir), None) => Ok(ModelSource::Directory(dir.clone())),
            (None, Some(repository)) => Ok(ModelSource::Repository(repository.clone())),
            (Some(dir), Some(repository)) => Err(ConfigError::Range {
                key: "model.repo".to_owned(),
                found: format!("{:?}", repository.to_string()),
                wanted: format!("none beside model.dir, which is {dir:?}"),
            }),
        }
    }
}

/// An optional path. `None` is an empty string in TOML.
mod optional_path {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        let text = path.as_ref().map(|path| path.to_string_lossy());
        to.serialize_str(&text.unwrap_or_default())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        let text = String::deserialize(from)?;
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

/// An optional repository. `None` is an empty string in TOML.
mod repository {
    use lapwing_model::Repository;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(found: &Option<Repository>, to: S) -> Result<S::Ok, S::Error> {
        let text = found.as_ref().map(Repository::to_string);
        to.serialize_str(&text.unwrap_or_default())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Repository>, D::Error> {
        let text = String::deserialize(from)?;
        let repository = (!text.is_empty()).then(|| {
            let wanted = "expected OWNER/NAME or OWNER/NAME@REVISION";
            Repository::parse(&text).ok_or_else(|| D::Error::custom(wanted))
        });
        repository.transpose()
    }
}

/// Evaluation of the policy: sampled play on held-out scenes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalConfig {
    /// Episodes, each on its own scene. 50, as in the paper.
    pub episodes: usize,
    /// Training steps between evaluations. 0: evaluate only before the first step and after the last.
    pub every: usize,
    /// Determines the scenes together with the game. Runs with the same seed are evaluated on the same scenes.
    pub seed: u64,
    /// Sampling temperature. 0 is greedy. 1 is the policy as trained.
    pub temperature: f64,
}

impl EvalConfig {
    /// Whether an evaluation is due before this step.
    pub fn is_due(&self, step: usize) -> bool {
        step == 0 || self.every > 0 && step.is_multiple_of(self.every)
    }
}

impl Default for EvalConfig {
    fn default() -> EvalConfig {
        EvalConfig {
            episodes: 50,
            every: 50,
            seed: 1,
            temperature: 1.0,
        }
    }
}

/// Checkpoints between evaluations. The run also saves one at every evaluation, at the end and before it returns an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Training steps between checkpoints; 0: unlimited. 0, because minutes measure better how much work may be lost.
    pub every: usize,
    /// Minutes between checkpoints; 0: unlimited. 10, a tolerable loss.
    pub minutes: f64,
    /// Number of latest checkpoints to keep, in addition to that of the best evaluation. 2, in case the latest is damaged.
    pub keep: usize,
}

impl CheckpointConfig {
    /// Whether a checkpoint is due after this step. `seconds` is the time since the last one.
    pub fn is_due(&self, step: usize, seconds: f64) -> bool {
        self.every > 0 && step.is_multiple_of(self.every)
            || self.minutes > 0.0 && seconds >= 60.0 * self.minutes
    }
}

impl Default for CheckpointConfig {
    fn default() -> CheckpointConfig {
        CheckpointConfig {
            every: 0,
            minutes: 10.0,
            keep: 2,
        }
    }
}

/// Records beside `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordConfig {
    /// Episodes of each evaluation, and of each group of the step after it, to write to `episodes.jsonl`. 4, enough for an
    /// impression of the policy.
    pub episodes: usize,
    /// Write every episode of every step. Off, because a long run would write gigabytes.
    pub all_episodes: bool,
    /// Also write event files for TensorBoard. Off, because `lapwing export` can make them later from `metrics.jsonl`.
    pub tensorboard: bool,
}

impl Default for RecordConfig {
    fn default() -> RecordConfig {
        RecordConfig {
            episodes: 4,
            all_episodes: false,
            tensorboard: false,
        }
    }
}
