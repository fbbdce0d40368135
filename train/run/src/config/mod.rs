//! Every knob of a run, its default and the reason for it.
//!
//! The defaults are the paper's (arXiv 2508.10839) where it says, and ours where it is silent. A preset under
//! `train/presets/` states only what it does differently. To add a knob, add a field here and use it.

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

/// All that a run depends on. Written to the run directory, it makes the same run again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Names the run directory. A preset's own name, or the stem of the file.
    pub name: String,
    /// What learns: `ms-grpo`, a language model; `dqn` or `pqn`, a network that sees the board and reads nothing, as a
    /// yardstick (docs/yardsticks.md).
    pub learner: LearnerKind,
    /// The language model.
    pub model: ModelChoice,
    /// The adapter that is trained, unless `train.weights` says that the model itself is.
    pub lora: LoraConfig,
    /// The game that is played.
    pub game: GameConfig,
    /// Games that are mixed into training.
    pub mix: Vec<MixConfig>,
    /// How the model plays it.
    pub policy: PolicyConfig,
    /// How it learns from that.
    pub train: TrainConfig,
    /// The network of `dqn` and `pqn`, and how it plays.
    pub value: ValueConfig,
    /// How `dqn` learns.
    pub dqn: DqnConfig,
    /// How `pqn` learns.
    pub pqn: PqnConfig,
    /// Who of the turns gets the credit.
    pub credit: CreditConfig,
    /// What a critic goes by, where one gives the credit.
    pub critic: CriticConfig,
    /// How it is examined.
    pub eval: EvalConfig,
    /// What of the run is saved, to go on from.
    pub checkpoint: CheckpointConfig,
    /// What is written down beside the metrics.
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
    /// A directory with `config.json`, `*.safetensors` and `tokenizer.json`, as Hugging Face has them.
    /// Empty: the small base that is built into the program, so that training needs no download.
    #[serde(with = "optional_path")]
    pub dir: Option<PathBuf>,
    /// A repository of the Hugging Face hub instead: `owner/name`, or `owner/name@revision`, the revision being a branch,
    /// a tag or a commit. It is taken from the local cache if it is there, and downloaded otherwise. A run notes the
    /// commit here, so that its config means the same model later. Empty: none.
    #[serde(with = "repository")]
    pub repo: Option<Repository>,
    /// A directory with a PEFT adapter to go on from: to play with, or to train on. The reference is then the model with
    /// this adapter as it was, and rank, alpha and layers are the adapter's, whatever `[lora]` says. Empty: none.
    #[serde(with = "optional_path")]
    pub adapter: Option<PathBuf>,
}

impl ModelChoice {
    /// Where the model is read from.
    ///
    /// # Errors
    /// If a directory and a repository are given.
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

/// A path that may be left out, which is an empty text in TOML.
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

/// A repository that may be left out, which is an empty text in TOML.
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

/// How the policy is examined: sampled play on scenes that training never sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EvalConfig {
    /// Episodes, each on its own scene. The paper: 50.
    pub episodes: usize,
    /// Training steps between two evaluations; 0: only before the first step and after the last.
    pub every: usize,
    /// The scenes follow from this number alone, so that different runs are examined on the same ones.
    pub seed: u64,
    /// Sampling temperature; 0 takes the likeliest token. 1: the policy that was trained.
    pub temperature: f64,
}

impl EvalConfig {
    /// Whether an evaluation comes before this step.
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

/// When the run is saved so that it can go on from there. It is at every evaluation, at the end, and before an error is
/// told, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Training steps between two checkpoints; 0: no number of steps brings one. 0: minutes say better what may be lost.
    pub(crate) every: usize,
    /// Minutes after the last checkpoint when the next step brings one; 0: no time does. 10: what one can bear to lose.
    pub(crate) minutes: f64,
    /// How many of the latest are kept. That of the best evaluation stays beside them. 2: one, and one in case it is
    /// damaged.
    pub(crate) keep: usize,
}

impl CheckpointConfig {
    /// Whether one comes after this step, so many seconds after the last.
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

/// What is written down beside `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordConfig {
    /// Episodes of each evaluation, and of each group of the step after it, that are kept whole in `episodes.jsonl`. 4:
    /// enough to see what goes on.
    pub episodes: usize,
    /// Keep every episode of every step. Off: that is gigabytes in a long run.
    pub all_episodes: bool,
    /// Write event files for TensorBoard too. Off: `lapwing export` makes them from `metrics.jsonl` at any time.
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
