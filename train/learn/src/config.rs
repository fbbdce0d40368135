//! The config sections `[train]`, `[credit]`, `[critic]`, `[value]`, `[dqn]` and `[pqn]`.

use lapwing_play::config::PolicyConfig;
use lapwing_tensor::{AdamW, rl::Kl};
use serde::{Deserialize, Serialize};

/// The config sections that a training step reads.
#[derive(Debug, Clone, Copy)]
pub struct StepOptions<'a> {
    /// `[policy]`
    pub policy: &'a PolicyConfig,
    /// `[train]`
    pub train: &'a TrainConfig,
    /// `[credit]`
    pub credit: &'a CreditConfig,
    /// `[critic]`
    pub critic: &'a CriticConfig,
}

/// How the adapter, or the whole model, is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Which weights are trained. `lora`: those of an adapter, which takes little memory. `all`: the model's own in 32 bits,
    /// which takes 20 bytes for each and 2 or 4 more for the reference. `all` is for small models and needs its own `lr`.
    pub weights: Weights,
    /// Training steps. The paper: 700.
    pub steps: usize,
    /// Scenes played in a step, with one group of episodes each. 1, as the paper appears to.
    pub groups: usize,
    /// G, the episodes of a group. The paper: 100.
    pub group_size: usize,
    /// G', the episodes of a group that are trained on. The paper: 25. Unused with `sampling = "all"`.
    pub learn: usize,
    /// How those are selected.
    pub sampling: Sampling,
    /// AAW's weights are softmax(|advantage| / this). 1, since the paper names none.
    pub aaw_temperature: f64,
    /// Trains on the groups with the largest standard deviations of returns, as many as hold this share of their sum (RAGEN-2
    /// found 0.9 best). 1: all groups in which returns differ.
    pub filter: f64,
    /// Weights each drawn episode by the inverse of its inclusion probability, which removes AAW's bias towards large
    /// advantages. Off: that bias is the method.
    pub correction: bool,
    /// The episodes of a group also share the randomness after the start. Off: the advantage should average over luck.
    pub shared_luck: bool,
    /// Whose importance ratio is clipped.
    pub ratio: Ratio,
    /// Clips a token's ratio below 1 - this. 0.2, as in PPO.
    pub clip_low: f64,
    /// Clips a token's ratio above 1 + this. 0.2, as in PPO.
    pub clip_high: f64,
    /// The same for a turn's ratio, down and up. 0.01: a mean over a few tokens moves less than each of them.
    pub turn_clip: [f64; 2],
    /// The same for an episode's ratio. GSPO's values for whole replies.
    pub episode_clip: [f64; 2],
    /// Range of the mean entropy of a token, in nats. Outside of it, entropy becomes a part of the advantage. 0 to 100: no
    /// limit.
    pub entropy_band: [f64; 2],
    /// Weight of the entropy for each nat outside of the band. 0.1: a tenth of a standard deviation of the advantages.
    pub entropy_gain: f64,
    /// Weight of the KL penalty against the initial policy: the model without its adapter, or with the one that training
    /// started from. With `weights = "all"` it is a copy of the initial model, which is not kept if this is 0; the KL is then
    /// not measured. Small: it prevents collapse and should not slow training.
    pub beta: f64,
    /// Estimator of that KL from one sample. `k3`, as in GRPO: its gradient is that of KL(reference, policy). `k2`: its
    /// gradient is that of KL(policy, reference). (The gradient of k1 is zero on average, so it is refused.)
    pub kl: Kl,
    /// What the loss is a mean over.
    pub aggregation: Aggregation,
    /// Passes over a step's episodes. 1: the only fully on-policy choice.
    pub passes: usize,
    /// Optimiser updates in a pass. 1, for the same reason.
    pub minibatches: usize,
    /// Learning rate of AdamW. 1e-5: adapters need about ten times the rate of full training. The default is the same with
    /// `weights = "all"`, for which 1e-6 is usual in large models; the built-in base needs the same rate as its adapters.
    pub lr: f64,
    /// Steps in which the learning rate rises from 0. 0: Adam's bias correction suffices at this rate.
    pub warmup: usize,
    /// Decoupled weight decay. 0: the KL penalty already keeps the adapter near the base.
    pub weight_decay: f64,
    /// Decay of AdamW's two moments. The usual values.
    pub betas: [f64; 2],
    /// Clips the norm of the whole gradient. 1, the usual value.
    pub max_grad_norm: f64,
    /// Measures the noise of each step's gradient, at about the cost of its update. Off: training does not need it.
    pub measure: bool,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Tokens that go through the model at once in an update (a micro-batch). Limits the memory; changes results only by
    /// rounding.
    pub tokens_per_batch: usize,
}

impl Default for TrainConfig {
    fn default() -> TrainConfig {
        TrainConfig {
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

/// Which weights are trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// Those of an adapter; the model stays fixed.
    Lora,
    /// All of the model's own.
    All,
}

/// How the episodes to train on are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampling {
    /// Drawn without replacement, weighted by absolute advantage (the paper's).
    Aaw,
    /// Drawn without replacement, with equal weights.
    Uniform,
    /// Every episode.
    All,
    /// Those of the largest absolute advantages.
    Top,
}

impl TrainConfig {
    /// Returns the clip range of the ratio, down and up.
    pub fn clip(&self) -> [f64; 2] {
        match self.ratio {
            Ratio::Token => [self.clip_low, self.clip_high],
            Ratio::Turn => self.turn_clip,
            Ratio::Episode => self.episode_clip,
        }
    }

    /// Returns the optimiser's settings with this learning rate.
    pub(crate) fn adamw(&self, lr: f64) -> AdamW {
        AdamW {
            lr,
            beta1: self.betas[0],
            beta2: self.betas[1],
            eps: 1e-8,
            weight_decay: self.weight_decay,
            max_norm: self.max_grad_norm,
        }
    }
}

/// Whose importance ratio is clipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ratio {
    /// Each token has its own ratio (PPO).
    Token,
    /// The tokens of a turn share their geometric mean.
    Turn,
    /// The tokens of an episode share theirs (GSPO, arXiv 2507.18071, with the episode as its sequence; also `sequence`).
    #[serde(alias = "sequence")]
    Episode,
}

impl Ratio {
    /// Returns the config keys of its clip range.
    pub fn clip_keys(self) -> &'static str {
        match self {
            Ratio::Token => "train.clip_low and train.clip_high",
            Ratio::Turn => "train.turn_clip",
            Ratio::Episode => "train.episode_clip",
        }
    }
}

/// What the loss is a mean over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// All tokens: long replies and long episodes count more.
    Token,
    /// Turns, each the mean of its tokens: long episodes count more.
    Turn,
    /// Episodes, each the mean of its turns.
    Episode,
}

/// Credit assignment: the advantage of a turn. `train/learn/src/credit.rs` has the formulas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreditConfig {
    /// Advantage estimator.
    pub method: AdvantageEstimator,
    /// Divisor of the advantages.
    pub normalise: AdvantageScale,
    /// Discount per turn. 0.95, as in GiGPO. `episode` and `rloo` do not discount.
    pub gamma: f64,
    /// Lambda of `tabular` and `critic`: 0 bootstraps after one turn, 1 uses the return to the end. 0.95, as in turn-level
    /// PPO.
    pub lambda: f64,
    /// Weight of the state-level term of `gigpo`. 1, as published.
    pub omega: f64,
}

impl Default for CreditConfig {
    fn default() -> CreditConfig {
        CreditConfig {
            method: AdvantageEstimator::Episode,
            normalise: AdvantageScale::Std,
            gamma: 0.95,
            lambda: 0.95,
            omega: 1.0,
        }
    }
}

/// Advantage estimator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdvantageEstimator {
    /// The episode's return compared with the mean of its group (MS-GRPO, arXiv 2508.10839).
    Episode,
    /// The episode's return compared with the mean of the others (RLOO, arXiv 2402.14740; as published with
    /// `normalise = "mean"`).
    Rloo,
    /// `episode`, plus the return to go compared with that of the group's other turns in the same state (GiGPO, arXiv
    /// 2505.10978).
    Gigpo,
    /// TD(lambda) with a table of the group's own states and their mean returns to go (after GAGPO, arXiv 2605.13217).
    Tabular,
    /// TD(lambda) with a critic that is trained beside the policy (turn-level PPO, arXiv 2512.17008; the section `critic`).
    Critic,
}

/// Divisor of the advantages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdvantageScale {
    /// Their standard deviation in the group: all groups count alike.
    Std,
    /// 1: only the mean is subtracted (Dr. GRPO, arXiv 2503.20783).
    Mean,
    /// Their standard deviation in all groups of the step together.
    Batch,
}

/// The critic of turn-level PPO ([`critic`](crate::critic)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CriticConfig {
    /// Width of the hidden layer. 64: enough for the values of a small game.
    pub hidden: usize,
    /// Learning rate of its AdamW. 1e-3, usual for a small network with random weights.
    pub lr: f64,
    /// Passes over all turns of a step. 10: a pass is cheap, because the features are computed once.
    pub passes: usize,
    /// Clips the change of a value in a step. 0.5, as in verl, for returns of about 1. Scale it with the returns of the game.
    pub clip: f64,
    /// First steps in which only the critic is trained. 5: advantages from an untrained critic are plain returns with all
    /// their variance.
    pub warmup: usize,
}

impl Default for CriticConfig {
    fn default() -> CriticConfig {
        CriticConfig {
            hidden: 64,
            lr: 1e-3,
            passes: 10,
            clip: 0.5,
            warmup: 5,
        }
    }
}

/// What is trained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LearnerKind {
    /// A language model, by MS-GRPO.
    #[default]
    MsGrpo,
    /// A network on feature planes, by DQN with replay.
    Dqn,
    /// A network on feature planes, by Q(lambda) on the step's episodes (PQN).
    Pqn,
}

impl LearnerKind {
    /// Returns its name in a config.
    pub fn name(self) -> &'static str {
        match self {
            LearnerKind::MsGrpo => "ms-grpo",
            LearnerKind::Dqn => "dqn",
            LearnerKind::Pqn => "pqn",
        }
    }

    /// Whether a language model learns. Otherwise it is a network that reads no text.
    pub fn has_language(self) -> bool {
        match self {
            LearnerKind::MsGrpo => true,
            LearnerKind::Dqn | LearnerKind::Pqn => false,
        }
    }
}

/// The network of `dqn` and `pqn`, and how it explores. The paper does not publish its network; these numbers are ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValueConfig {
    /// A file with the initial weights, for the same layers. Empty: random weights.
    pub network: String,
    /// Encodes the cells up to this distance from the agent, with the agent in the middle, so that a position is independent
    /// of its place on the board. 0: encodes the whole board.
    pub window: usize,
    /// Adds the share of turns left as an input, and treats the step limit as a terminal state. Off: the value after the limit
    /// is bootstrapped.
    pub turns_left: bool,
    /// Output planes of each 3x3 convolution, first to last. None: the dense layers read the planes.
    pub channels: Vec<usize>,
    /// Widths of the dense layers before the last.
    pub hidden: Vec<usize>,
    /// Discount per turn. 0.99, the usual value.
    pub gamma: f64,
    /// Episodes of a step, each on its own scene, played together. 64: one forward pass serves all of them.
    pub episodes: usize,
    /// Final probability of a random action. 0.05, the usual value. Evaluations do not explore.
    pub epsilon: f64,
    /// Steps in which that probability falls linearly from 1.
    pub exploration: usize,
    /// Turns of an update.
    pub batch: usize,
    /// Steps in which the learning rate falls linearly to a tenth. 0: it stays constant.
    pub anneal: usize,
}

impl Default for ValueConfig {
    fn default() -> ValueConfig {
        ValueConfig {
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

/// Settings of `dqn` beside `[value]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DqnConfig {
    /// Turns in the replay buffer. Games of some twenty turns do not need the usual million.
    pub capacity: usize,
    /// Turns in the replay buffer before the first update.
    pub start: usize,
    /// Updates per step.
    pub updates: usize,
    /// Updates between copies to the target network. 500, as in cleanrl.
    pub target: usize,
    /// Turns of an n-step target. 3, as in Rainbow.
    pub n_step: usize,
    /// Exponent of the priorities: 0, uniform; 1, proportional to the error. 0.5, as in Rainbow.
    pub alpha: f64,
    /// Initial exponent of the importance weights: 0, no correction; 1, full correction. 0.4, as in Rainbow.
    pub beta: f64,
    /// Steps in which that exponent rises linearly to 1.
    pub beta_steps: usize,
}

impl Default for DqnConfig {
    fn default() -> DqnConfig {
        DqnConfig {
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

/// Settings of `pqn` beside `[value]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PqnConfig {
    /// Lambda of the targets: 0, one turn ahead; 1, to the end of the episode. 0.65, as in the paper of PQN.
    pub lambda: f64,
    /// Passes over a step's turns. 2: with 4, as in cleanrl, a step improved little more and took longer.
    pub passes: usize,
}

impl Default for PqnConfig {
    fn default() -> PqnConfig {
        PqnConfig {
            lambda: 0.65,
            passes: 2,
        }
    }
}
