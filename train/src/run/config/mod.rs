//! Every knob of a run, its default and the reason for it.
//!
//! The defaults are the paper's (arXiv 2508.10839) where it says, and ours where it is silent. A preset under
//! `train/presets/` states only what it does differently. To add a knob, add a field here and use it.

mod check;
mod credit;
mod critic;
mod error;
mod idle;
mod load;
mod resolved;
mod source;
#[cfg(test)]
mod tests;
mod value;

use std::ops::Range;
use std::path::{Path, PathBuf};

use lapwing_env::Scenario;
use lapwing_model::{ChatTemplate, LoraConfig, Repository};
use lapwing_tensor::rl::Kl;
use serde::{Deserialize, Serialize};

use crate::base::source::Source;
use crate::foreign;
use crate::play::Form;

pub use check::MOST_EPISODES;
pub use credit::{Credit, Method, Normalise};
pub use critic::Critic;
pub use error::ConfigError;
pub use resolved::{Origin, Resolved};
pub use source::{PRESETS, Place, Preset};
pub use value::{Dqn, Learner, Pqn, Value};

/// All that a run depends on. Written to the run directory, it makes the same run again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Names the run directory. A preset's own name, or the stem of the file.
    pub name: String,
    /// What learns: `ms-grpo`, a language model; `dqn` or `pqn`, a network that sees the board and reads nothing, as a
    /// yardstick (docs/yardsticks.md).
    pub learner: Learner,
    /// The language model.
    pub model: Model,
    /// The adapter that is trained, unless `train.weights` says that the model itself is.
    pub lora: LoraConfig,
    /// The game that is played.
    pub game: Game,
    /// Games that are mixed into training.
    pub mix: Vec<Mix>,
    /// How the model plays it.
    pub policy: Policy,
    /// How it learns from that.
    pub train: Train,
    /// The network of `dqn` and `pqn`, and how it plays.
    pub value: Value,
    /// How `dqn` learns.
    pub dqn: Dqn,
    /// How `pqn` learns.
    pub pqn: Pqn,
    /// Who of the turns gets the credit.
    pub credit: Credit,
    /// What a critic goes by, where one gives the credit.
    pub critic: Critic,
    /// How it is examined.
    pub eval: Eval,
    /// What of the run is saved, to go on from.
    pub checkpoint: Checkpoint,
    /// What is written down beside the metrics.
    pub record: Recording,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            name: "run".to_owned(),
            learner: Learner::default(),
            model: Model::default(),
            lora: LoraConfig::default(),
            game: Game::default(),
            mix: Vec::new(),
            policy: Policy::default(),
            train: Train::default(),
            value: Value::default(),
            dqn: Dqn::default(),
            pqn: Pqn::default(),
            credit: Credit::default(),
            critic: Critic::default(),
            eval: Eval::default(),
            checkpoint: Checkpoint::default(),
            record: Recording::default(),
        }
    }
}

/// The language model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// A directory with `config.json`, `*.safetensors` and `tokenizer.json`, as Hugging Face has them.
    /// Empty: the small base that is built into the program, so that training needs no download.
    pub dir: String,
    /// A repository of the Hugging Face hub instead: `owner/name`, or `owner/name@revision`, the revision being a branch,
    /// a tag or a commit. It is taken from the local cache if it is there, and downloaded otherwise. A run notes the
    /// commit here, so that its config means the same model later. Empty: none.
    pub repo: String,
    /// A directory with a PEFT adapter to go on from: to play with, or to train on. The reference is then the model with
    /// this adapter as it was, and rank, alpha and layers are the adapter's, whatever `[lora]` says. Empty: none.
    pub adapter: String,
}

impl Model {
    /// Where the model is read from.
    ///
    /// # Errors
    /// If a directory and a repository are given, or what is given is no name of a repository.
    pub fn source(&self) -> Result<Source, ConfigError> {
        let wrong = |wanted: String| ConfigError::Range {
            key: "model.repo".to_owned(),
            found: format!("{:?}", self.repo),
            wanted,
        };
        match (&*self.dir, &*self.repo) {
            ("", "") => Ok(Source::BuiltIn),
            (dir, "") => Ok(Source::Directory(dir.into())),
            ("", repo) => match Repository::parse(repo) {
                Some(repository) => Ok(Source::Repository(repository)),
                None => Err(wrong("OWNER/NAME or OWNER/NAME@REVISION".to_owned())),
            },
            (dir, _) => Err(wrong(format!("none beside model.dir, which is {dir:?}"))),
        }
    }

    /// The directory of the adapter to go on from.
    pub fn adapter_directory(&self) -> Option<&Path> {
        (!self.adapter.is_empty()).then(|| Path::new(&self.adapter))
    }
}

/// The game.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Game {
    /// One of those that `lapwing games` lists; or one that lives elsewhere: `exec:COMMAND` or `ws://HOST:PORT/ws`.
    pub name: String,
    /// One of the game's probes, which changes instructions and rewards: options of its own over those below. Empty: none.
    pub probe: String,
    /// The game's own options, the step limit among them; `lapwing games` shows them with their defaults, and
    /// `docs/environments.md` those of games that live elsewhere.
    pub options: toml::Table,
}

impl Game {
    /// A game that is there, with every option.
    ///
    /// # Panics
    /// If its options hold a null.
    pub fn of(scenario: &dyn Scenario) -> Game {
        Game {
            name: scenario.name().to_owned(),
            probe: String::new(),
            options: toml::Table::try_from(scenario.options())
                .expect("a game's options hold no nulls"),
        }
    }

    /// The game with these options.
    ///
    /// # Errors
    /// If there is no such game or probe, or it does not take these options.
    pub fn scenario(&self) -> Result<Box<dyn Scenario>, ConfigError> {
        self.scenario_in("game")
    }

    /// The same; `section` is where the config says so.
    fn scenario_in(&self, section: &str) -> Result<Box<dyn Scenario>, ConfigError> {
        let own = load::json(&format!("{section}.options"), &self.options)?;
        if foreign::is_foreign(&self.name) {
            if !self.probe.is_empty() {
                return Err(ConfigError::Range {
                    key: format!("{section}.probe"),
                    found: format!("{:?}", self.probe),
                    wanted: "none: games that live elsewhere have no probes".to_owned(),
                });
            }
            let scenario = foreign::configure(&self.name, &own.into());
            return scenario.map_err(|refused| match refused {
                foreign::Refused::Options(error) => error.into(),
                foreign::Refused::Name(wanted) => ConfigError::Range {
                    key: format!("{section}.name"),
                    found: format!("{:?}", self.name),
                    wanted,
                },
            });
        }
        let (kind, mut options) = lapwing_env::find_variant(&self.name)?;
        let set = options.as_object_mut().expect("find_variant promises it");
        set.extend(own);
        if !self.probe.is_empty() {
            let Some((_, changes)) = kind.probe(&self.probe) else {
                let known: Vec<&str> = kind.probes.iter().map(|probe| probe.name).collect();
                return Err(ConfigError::Range {
                    key: format!("{section}.probe"),
                    found: format!("{:?}", self.probe),
                    wanted: format!("a probe of {}: {}", kind.name, known.join(", ")),
                });
            };
            set.extend(changes.as_object().cloned().unwrap_or_default());
        }
        Ok((kind.configure)(&options)?)
    }
}

impl Default for Game {
    fn default() -> Game {
        Game {
            name: "frozen-lake".to_owned(),
            probe: String::new(),
            options: toml::Table::new(),
        }
    }
}

/// A game that some groups of a training step play instead: another game, the same with other options, or a probe.
/// Evaluations play the run's own game alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mix {
    /// One of those that `lapwing games` lists. Empty: the run's own, with its options.
    pub name: String,
    /// One of its probes. Empty: none.
    pub probe: String,
    /// The share of the groups that play it, 0 to 1; each group draws.
    pub share: f64,
    /// The first step in which it is played, from 0 on.
    pub from: usize,
    /// The step before which it is played for the last time; 0: to the end. Shares of 1, one after the other, make a
    /// curriculum.
    pub until: usize,
    /// Options of the game.
    pub options: toml::Table,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix {
            name: String::new(),
            probe: String::new(),
            share: 0.1,
            from: 0,
            until: 0,
            options: toml::Table::new(),
        }
    }
}

impl Mix {
    /// The steps in which it is played.
    pub fn steps(&self) -> Range<usize> {
        let end = if self.until == 0 {
            usize::MAX
        } else {
            self.until
        };
        self.from..end
    }

    /// What it is called in records, in a run that is about this game.
    pub fn title(&self, own: &Game) -> String {
        let mut title = self.game(own).name;
        if !self.probe.is_empty() {
            title += &format!(" ({})", self.probe);
        }
        title
    }

    /// The game, in a run that is about this one.
    ///
    /// # Errors
    /// As [`Game::scenario`].
    pub fn scenario(&self, own: &Game) -> Result<Box<dyn Scenario>, ConfigError> {
        self.game(own).scenario_in("mix")
    }

    fn game(&self, own: &Game) -> Game {
        let mut game = match self.name.is_empty() {
            true => own.clone(),
            false => Game {
                name: self.name.clone(),
                ..Game::default()
            },
        };
        game.options.extend(self.options.clone());
        game.probe.clone_from(&self.probe);
        game
    }
}

/// How the model plays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// What the reply must look like.
    pub reply: Form,
    /// Turns before the current one that a prompt tells again, the replies included. 0: the observation says it all, and
    /// prompts that forget share most of their tokens.
    pub history: usize,
    /// Files that put the game in other words: templates with parts that stand for those of the usual one. Of several,
    /// each episode draws one. None: the usual one.
    pub templates: Vec<PathBuf>,
    /// Sampling temperature in training; log-probs are those of this distribution too, so that the first update's
    /// ratio is 1. 1: the model as it is.
    pub temperature: f64,
    /// The standard deviation of returns in a group to steer for: training plays warmer where returns lie closer together
    /// and colder where they lie further apart. 0: the temperature stays.
    pub spread: f64,
    /// How far the temperature goes, and back.
    pub temperature_range: [f64; 2],
    /// By what share it changes in a step, at most.
    pub temperature_rate: f64,
    /// A reply is cut off after so many tokens. 256 leaves room for a few sentences of thought.
    pub max_new_tokens: usize,
    /// Taken off the return for every reply that cannot be read. 1, what the paper's first author later trained with.
    pub format_penalty: f64,
    /// Variables for the model's chat template, such as `enable_thinking = false` for Qwen3. None: what the template
    /// does by itself.
    pub chat_template_kwargs: toml::Table,
}

impl Policy {
    /// The variables in the form that templates read.
    ///
    /// # Errors
    /// If one of them is something that templates do not have, or would replace what lapwing itself gives to the template:
    /// the conversation (in which nobody has tools or documents) or the checkpoint's special tokens.
    pub fn template_variables(
        &self,
    ) -> Result<serde_json::Map<String, serde_json::Value>, ConfigError> {
        const SECTION: &str = "policy.chat_template_kwargs";
        let ours = |name: &&String| {
            ChatTemplate::is_reserved(name) || ["tools", "documents"].contains(&name.as_str())
        };
        if let Some(name) = self.chat_template_kwargs.keys().find(ours) {
            return Err(ConfigError::Range {
                key: format!("{SECTION}.{name}"),
                found: self.chat_template_kwargs[name].to_string(),
                wanted: "it left out: what the template gets under this name is not free to be set"
                    .to_owned(),
            });
        }
        load::json(SECTION, &self.chat_template_kwargs)
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            reply: Form::Tags,
            history: 0,
            templates: Vec::new(),
            temperature: 1.0,
            spread: 0.0,
            temperature_range: [0.5, 2.0],
            temperature_rate: 0.05,
            max_new_tokens: 256,
            format_penalty: 1.0,
            chat_template_kwargs: toml::Table::new(),
        }
    }
}

/// How the adapter learns, or the whole model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// Which weights learn. `lora`: those of an adapter beside the model, which takes little memory. `all`: the model's own,
    /// in 32 bits, which takes 20 bytes for each and 2 or 4 more for the reference; for small models, and it wants an `lr`
    /// of its own.
    pub weights: Weights,
    /// Steps of training: each plays, weighs, chooses and learns. The paper: 700.
    pub steps: usize,
    /// Scenes played in a step, one group of episodes each. 1, as the paper seems to.
    pub groups: usize,
    /// G, the episodes of a group. The paper: 100.
    pub group_size: usize,
    /// G', the episodes of a group that are learned from. The paper: 25. With `sampling = "all"` it is not used.
    pub learn: usize,
    /// How those are chosen.
    pub sampling: Sampling,
    /// AAW's weights are softmax(|advantage| / this). 1, since the paper names none.
    pub aaw_temperature: f64,
    /// Groups are learned from, those of the widest returns first, until they hold this share of the sum of their standard
    /// deviations (RAGEN-2 found 0.9 best). 1: all groups in which returns differ.
    pub filter: f64,
    /// Weigh each drawn episode by the inverse of its chance to be drawn, which undoes AAW's bias towards episodes that
    /// stand out. Off: that bias is the method.
    pub correction: bool,
    /// The episodes of a group share what chance does after the start, too. Off: the advantage should average over luck.
    pub shared_luck: bool,
    /// Whose ratio of chances is clipped.
    pub ratio: Ratio,
    /// A token's ratio counts down to 1 - this. 0.2, as in PPO.
    pub clip_low: f64,
    /// A token's ratio counts up to 1 + this. 0.2, as in PPO.
    pub clip_high: f64,
    /// The same of a turn's ratio, down and up. 0.01: a mean over a few tokens moves less than each of them.
    pub turn_clip: [f64; 2],
    /// The same of an episode's ratio. As GSPO has it for whole replies.
    pub episode_clip: [f64; 2],
    /// Where the mean entropy of a token is to lie, in nats: below and above it, entropy becomes a part of the advantage.
    /// From 0 to 100: anywhere.
    pub entropy_band: [f64; 2],
    /// The weight of entropy for each nat outside of the band. 0.1: a tenth of what sets a good episode off from the mean.
    pub entropy_gain: f64,
    /// Weight of the KL penalty against the model without its adapter, or with the one that training began from; with
    /// `weights = "all"` against a copy of the model as it was, which is not held if this is 0: the KL is then not measured.
    /// Small: it guards against collapse and should not hold the policy back.
    pub beta: f64,
    /// How that KL is estimated from one sample. `k3`, as GRPO has it; its gradient is that of KL(reference, policy), which
    /// covers what the reference does. `k2`: that of KL(policy, reference), which keeps to it. (k1 as a loss has a gradient
    /// of zero on average, and is refused.)
    pub kl: Kl,
    /// What the loss is an average over.
    pub aggregation: Aggregation,
    /// Times that a step's episodes are learned from. 1: the only fully on-policy choice.
    pub passes: usize,
    /// Optimiser updates in a pass. 1, for the same reason.
    pub minibatches: usize,
    /// Learning rate of AdamW. 1e-5: adapters want about ten times what full training does. It stays 1e-5 with
    /// `weights = "all"`, for which 1e-6 is usual in large models; the built-in base wants what its adapters do.
    pub lr: f64,
    /// Steps in which the learning rate rises from 0. 0: Adam's own correction suffices at this rate.
    pub warmup: usize,
    /// Decoupled weight decay. 0: the KL penalty holds the adapter near the base already.
    pub weight_decay: f64,
    /// Decay of AdamW's two moments. Its usual values.
    pub betas: [f64; 2],
    /// The norm that the whole gradient is cut down to. 1, the usual value.
    pub max_grad_norm: f64,
    /// Measure how noisy each step's gradient is, for about the price of its update. Off: nothing that is learned needs it.
    pub measure: bool,
    /// Everything random follows from this number.
    pub seed: u64,
    /// Tokens of the packed tree that go through the model at once in an update (a micro-batch): bounds the memory,
    /// changes no result beyond rounding.
    pub tokens_per_batch: usize,
}

impl Default for Train {
    fn default() -> Train {
        Train {
            weights: Weights::Lora,
            steps: 700,
            groups: 1,
            group_size: 100,
            learn: 25,
            sampling: Sampling::Aaw,
            aaw_temperature: 1.0,
            filter: 1.0,
            correction: false,
            shared_luck: false,
            clip_low: 0.2,
            clip_high: 0.2,
            ratio: Ratio::Token,
            turn_clip: [0.01, 0.01],
            episode_clip: [3e-4, 4e-4],
            entropy_band: [0.0, 100.0],
            entropy_gain: 0.1,
            beta: 0.001,
            kl: Kl::K3,
            aggregation: Aggregation::Token,
            passes: 1,
            minibatches: 1,
            lr: 1e-5,
            warmup: 0,
            weight_decay: 0.0,
            betas: [0.9, 0.999],
            max_grad_norm: 1.0,
            measure: false,
            seed: 1,
            tokens_per_batch: 8192,
        }
    }
}

/// Which weights learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// Those of an adapter; the model stays as it is.
    Lora,
    /// All of the model's own.
    All,
}

/// How the episodes to learn from are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampling {
    /// Drawn without replacement, likelier the larger the absolute advantage (the paper's).
    Aaw,
    /// Drawn without replacement, all alike.
    Uniform,
    /// Every episode.
    All,
    /// Those of the largest absolute advantage.
    Top,
}

impl Train {
    /// How far the ratio may go, down and up.
    pub fn clip(&self) -> [f64; 2] {
        match self.ratio {
            Ratio::Token => [self.clip_low, self.clip_high],
            Ratio::Turn => self.turn_clip,
            Ratio::Episode => self.episode_clip,
        }
    }
}

/// Whose ratio of chances, now to when it was drawn, is clipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ratio {
    /// Every token has its own (PPO).
    Token,
    /// The tokens of a turn share their geometric mean.
    Turn,
    /// Those of an episode do (GSPO, arXiv 2507.18071, with the episode for its sequence; `sequence` means this too).
    #[serde(alias = "sequence")]
    Episode,
}

impl Ratio {
    /// The keys of its range.
    pub fn clip_keys(self) -> &'static str {
        match self {
            Ratio::Token => "train.clip_low and train.clip_high",
            Ratio::Turn => "train.turn_clip",
            Ratio::Episode => "train.episode_clip",
        }
    }
}

/// What the loss is an average over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// All tokens alike: long replies and long episodes count for more.
    Token,
    /// Turns of the game, each the mean of its tokens: long episodes count for more.
    Turn,
    /// Episodes, each the mean of its turns.
    Episode,
}

/// How the policy is examined: sampled play on scenes that training never sees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Eval {
    /// Episodes, each on its own scene. The paper: 50.
    pub episodes: usize,
    /// Training steps between two evaluations; 0: only before the first step and after the last.
    pub every: usize,
    /// The scenes follow from this number alone, so that different runs are examined on the same ones.
    pub seed: u64,
    /// Sampling temperature; 0 takes the likeliest token. 1: the policy that was trained.
    pub temperature: f64,
}

impl Eval {
    /// Whether an evaluation comes before this step.
    pub fn is_due(&self, step: usize) -> bool {
        step == 0 || self.every > 0 && step.is_multiple_of(self.every)
    }
}

impl Default for Eval {
    fn default() -> Eval {
        Eval {
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
pub struct Checkpoint {
    /// Training steps between two checkpoints; 0: no number of steps brings one. 0: minutes say better what may be lost.
    pub every: usize,
    /// Minutes after the last checkpoint when the next step brings one; 0: no time does. 10: what one can bear to lose.
    pub minutes: f64,
    /// How many of the latest are kept. That of the best evaluation stays beside them. 2: one, and one in case it is
    /// damaged.
    pub keep: usize,
}

impl Checkpoint {
    /// Whether one comes after this step, so many seconds after the last.
    pub fn is_due(&self, step: usize, seconds: f64) -> bool {
        self.every > 0 && step.is_multiple_of(self.every)
            || self.minutes > 0.0 && seconds >= 60.0 * self.minutes
    }
}

impl Default for Checkpoint {
    fn default() -> Checkpoint {
        Checkpoint {
            every: 0,
            minutes: 10.0,
            keep: 2,
        }
    }
}

/// What is written down beside `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recording {
    /// Episodes of each evaluation, and of each group of the step after it, that are kept whole in `episodes.jsonl`. 4:
    /// enough to see what goes on.
    pub episodes: usize,
    /// Keep every episode of every step. Off: that is gigabytes in a long run.
    pub all_episodes: bool,
    /// Write event files for TensorBoard too. Off: `lapwing export` makes them from `metrics.jsonl` at any time.
    pub tensorboard: bool,
}

impl Default for Recording {
    fn default() -> Recording {
        Recording {
            episodes: 4,
            all_episodes: false,
            tensorboard: false,
        }
    }
}
