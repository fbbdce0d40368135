//! The config sections `[train]`, `[credit]`, `[critic]`, `[value]`, `[dqn]` and `[pqn]`.

use lapwing_tensor::Kl;
use serde::{Deserialize, Serialize};

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

/// What the advantage of a turn is. [`learn::credit`](crate::credit) has the formulas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Credit {
    /// Whose standing a turn gets: that of its whole episode (MS-GRPO), or one of its own.
    pub method: Method,
    /// What advantages are divided by.
    pub normalise: Normalise,
    /// What a reward one turn later is worth beside one now. 0.95, as GiGPO has it. `episode` and `rloo` add rewards up as
    /// they are.
    pub gamma: f64,
    /// How far `tabular` and `critic` look at what really came before they trust the value of a state: 0 one turn, 1 to the
    /// end. 0.95, as turn-level PPO has it.
    pub lambda: f64,
    /// Weight of the part that `gigpo` adds for the state. 1, as published.
    pub omega: f64,
}

impl Default for Credit {
    fn default() -> Credit {
        Credit {
            method: Method::Episode,
            normalise: Normalise::Std,
            gamma: 0.95,
            lambda: 0.95,
            omega: 1.0,
        }
    }
}

/// Whose standing a turn gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Every turn has its episode's return beside the mean of the group (MS-GRPO, arXiv 2508.10839).
    Episode,
    /// Every turn has its episode's return beside the mean of the others (RLOO, arXiv 2402.14740; as published with
    /// `normalise = "mean"`).
    Rloo,
    /// `episode`, and what followed the turn beside what followed other turns of the group in the same state (GiGPO, arXiv
    /// 2505.10978).
    Gigpo,
    /// TD(lambda) on a table of the group's own states, each worth the mean of what followed (after GAGPO, arXiv 2605.13217).
    Tabular,
    /// TD(lambda) on what a critic that is trained beside the policy says of each state (turn-level PPO, arXiv 2512.17008; the
    /// section `critic`).
    Critic,
}

/// What advantages are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalise {
    /// Their standard deviation in the group: groups count alike, however far their returns lie apart.
    Std,
    /// Nothing: from the mean on, returns count as they are (Dr. GRPO, arXiv 2503.20783).
    Mean,
    /// Their standard deviation in all groups of the step together.
    Batch,
}

/// What learns to tell how much a state is worth. [`learn::critic`](crate::critic) is the method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Critic {
    /// Width of the head's hidden layer. 64: values of a small game are no harder.
    pub hidden: usize,
    /// Learning rate of its AdamW. 1e-3, usual for a small network that begins from nothing; critics that begin from a
    /// trained model take about ten times the policy's.
    pub lr: f64,
    /// Times that it learns from all turns of a step. 10: what the model makes of the prompts is computed once, so that a pass
    /// costs little.
    pub passes: usize,
    /// A value learns from a step as long as it is no further than this from what it was before. 0.5, as verl has it, for
    /// returns of about 1: raise it with the returns of the game.
    pub clip: f64,
    /// Steps at the beginning in which only the critic learns. 5: advantages against a critic that knows nothing are plain
    /// returns, with all their variance.
    pub warmup: usize,
}

impl Default for Critic {
    fn default() -> Critic {
        Critic {
            hidden: 64,
            lr: 1e-3,
            passes: 10,
            clip: 0.5,
            warmup: 5,
        }
    }
}

/// What learns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearnerKind {
    /// A language model, by MS-GRPO.
    #[default]
    MsGrpo,
    /// A network on the board, by DQN with replay.
    Dqn,
    /// A network on the board, by Q(lambda) on what was just played.
    Pqn,
}

impl LearnerKind {
    /// Its word in a config.
    pub fn name(self) -> &'static str {
        match self {
            LearnerKind::MsGrpo => "ms-grpo",
            LearnerKind::Dqn => "dqn",
            LearnerKind::Pqn => "pqn",
        }
    }
}

/// The network of `dqn` and `pqn`, and how it plays and learns. The paper's is not published: these numbers are ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Value {
    /// A file with the weights of a network to go on from, or to play with, of the same layers. Empty: fresh ones.
    pub network: String,
    /// What is seen of the board: the cells up to so many away from the agent, which is then in the middle. 0: the board as
    /// it lies. What was learned in one corner holds in all others where the agent is in the middle.
    pub window: usize,
    /// Turns left, as a share of the limit, are one more input, and the limit is an end like any other. Off: the limit
    /// cannot be seen, and what would have followed is estimated.
    pub turns_left: bool,
    /// Planes that each convolution over 3x3 cells gives, first to last. None: the board goes into the dense layers as it is.
    pub channels: Vec<usize>,
    /// Widths of the dense layers before the last.
    pub hidden: Vec<usize>,
    /// What a point in the next turn counts in this one. 0.99, the usual value.
    pub gamma: f64,
    /// Episodes of a step, each on a scene of its own, played together. 64: the device is asked once for all of them.
    pub episodes: usize,
    /// The chance of any action at the end of exploration. 0.05, the usual value; evaluations explore nothing.
    pub epsilon: f64,
    /// Steps in which that chance falls from 1, in a straight line.
    pub exploration: usize,
    /// Turns that an update learns from.
    pub batch: usize,
    /// Steps in which the learning rate falls to a tenth, in a straight line. 0: it does not.
    pub anneal: usize,
}

impl Default for Value {
    fn default() -> Value {
        Value {
            network: String::new(),
            window: 0,
            turns_left: true,
            channels: Vec::new(),
            hidden: vec![256, 256],
            gamma: 0.99,
            episodes: 64,
            epsilon: 0.05,
            exploration: 100,
            batch: 256,
            anneal: 0,
        }
    }
}

/// What `dqn` has beside that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dqn {
    /// Turns that are remembered. Games of some twenty turns do not need the usual million.
    pub capacity: usize,
    /// Turns that are there before the first is learned from.
    pub start: usize,
    /// Updates in a step.
    pub updates: usize,
    /// Updates after which the target network becomes what the network is. 500, as in cleanrl's.
    pub target: usize,
    /// Turns that a target looks ahead. 3, as in Rainbow.
    pub n_step: usize,
    /// How much likelier what surprised is to be drawn: 0, not at all; 1, in proportion. 0.5, as in Rainbow.
    pub alpha: f64,
    /// How far that bias is taken back at first: 0, not at all; 1, wholly. 0.4, as in Rainbow.
    pub beta: f64,
    /// Steps in which that rises to 1, in a straight line.
    pub beta_steps: usize,
}

impl Default for Dqn {
    fn default() -> Dqn {
        Dqn {
            capacity: 50_000,
            start: 1000,
            updates: 16,
            target: 500,
            n_step: 3,
            alpha: 0.5,
            beta: 0.4,
            beta_steps: 1000,
        }
    }
}

/// What `pqn` has beside that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pqn {
    /// Q(lambda): 0, targets look one turn ahead; 1, to the end of the episode. 0.65, as in the paper of PQN.
    pub lambda: f64,
    /// Times that a step's turns are learned from. 2: with 4, as in cleanrl's, a step learned little more and took longer.
    pub passes: usize,
}

impl Default for Pqn {
    fn default() -> Pqn {
        Pqn {
            lambda: 0.65,
            passes: 2,
        }
    }
}
