//! All settings of a run, their defaults and the reasons for these.
//!
//! The defaults are the paper's (arXiv 2508.10839) where it states them, otherwise ours. A preset under
//! `train/presets/` has only its differences. To add a setting, add a field to the section that uses it.

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

/// The config of a run. A run directory holds it, and training from it makes the same run again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Names the run directory: the preset's name, or the stem of the file.
    pub name: String,
    /// The learner: `ms-grpo` for a language model; `dqn` or `pqn` for a network without language, for comparison
    /// (docs/value-learners.md).
    pub learner: LearnerKind,
    /// The language model.
    pub model: ModelChoice,
    /// The adapter to train, unless `train.weights` is `all`.
    pub lora: LoraConfig,
    /// The game.
    pub game: GameConfig,
    /// Games mixed into training.
    pub mix: Vec<MixConfig>,
    /// Prompts, replies and sampling.
    pub policy: PolicyConfig,
    /// The algorithm.
    pub train: TrainConfig,
    /// The network of `dqn` and `pqn`, and its exploration.
    pub value: ValueConfig,
    /// The settings of `dqn`.
    pub dqn: DqnConfig,
    /// The settings of `pqn`.
    pub pqn: PqnConfig,
    /// Credit assignment.
    pub credit: CreditConfig,
    /// The critic, for `credit.method = "critic"`.
    pub critic: CriticConfig,
    /// Evaluations.
    pub eval: EvalConfig,
    /// Checkpoints.
    pub checkpoint: CheckpointConfig,
    /// Records in addition to the metrics.
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
    /// A directory with `config.json`, `*.safetensors` and `tokenizer.json`, in Hugging Face's layout. Empty: the
    /// built-in model, so that training needs no download.
    #[serde(with = "optional_path")]
    pub dir: Option<PathBuf>,
    /// A repository of the Hugging Face hub instead: `owner/name`, or `owner/name@revision` with a branch, tag or
    /// commit. It comes from the local cache, or is downloaded. A run records the commit here, so that its config
    /// always means the same model. Empty: none.
    #[serde(with = "repository")]
    pub repo: Option<Repository>,
    /// A directory with a PEFT adapter to start from, for playing or training. The KL reference is then the model with
    /// this adapter at the start, and rank, alpha and layers are the adapter's instead of those of `[lora]`. Empty:
    /// none.
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

/// An optional path, which is an empty string in TOML.
mod optional_path {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let text = path.as_ref().map(|path| path.to_string_lossy());
        to.serialize_str(&text.unwrap_or_default())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let text = String::deserialize(from)?;
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

/// An optional repository, which is an empty string in TOML.
mod repository {
    use lapwing_model::Repository;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        found: &Option<Repository>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let text = found.as_ref().map(Repository::to_string);
        to.serialize_str(&text.unwrap_or_default())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Repository>, D::Error> {
        let text = String::deserialize(from)?;
        let repository = (!text.is_empty()).then(|| {
            let wanted = "expected OWNER/NAME or OWNER/NAME@REVISION";
            Repository::parse(&text).ok_or_else(|| D::Error::custom(wanted))
        });
        repository.transpose()
    }
}

/// Evaluations: sampled play on held-out scenes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalConfig {
    /// Episodes, each on its own scene. The paper: 50.
    pub episodes: usize,
    /// Training steps between two evaluations; 0: only before the first step and after the last.
    pub every: usize,
    /// The seed of the scenes. Different runs with the same seed play the same scenes.
    pub seed: u64,
    /// Sampling temperature; 0 is greedy. 1: the trained policy itself.
    pub temperature: f64,
}

impl EvalConfig {
    /// Returns whether an evaluation comes before this step.
    pub(crate) fn is_due(&self, step: usize) -> bool {
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

/// When checkpoints are saved, in addition to every evaluation, the end of the run, and errors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Training steps between two checkpoints; 0: none by steps. 0, because minutes better describe the work at risk.
    pub(crate) every: usize,
    /// Minutes between checkpoints; 0: none by time. 10: an acceptable loss.
    pub(crate) minutes: f64,
    /// The number of latest checkpoints to keep, beside that of the best evaluation. 2: one more in case the latest is
    /// damaged.
    pub(crate) keep: usize,
}

impl CheckpointConfig {
    /// Returns whether a checkpoint is due after this step, this many seconds after the last one.
    pub(crate) fn is_due(&self, step: usize, seconds: f64) -> bool {
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

/// Records in addition to `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordConfig {
    /// Complete episodes in `episodes.jsonl`, of each evaluation and of each group of the step after it. 4: enough for
    /// an impression.
    pub episodes: usize,
    /// Keep every episode of every step. Off, because a long run writes gigabytes.
    pub all_episodes: bool,
    /// Also write event files for TensorBoard. Off, because `lapwing export` makes them from `metrics.jsonl` at any
    /// time.
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
