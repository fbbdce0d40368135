//! The config sections `[train]`, `[credit]`, `[critic]`, `[value]`, `[dqn]` and `[pqn]`.

use lapwing_env::OptionRange::{Positive, Real, Whole};
use lapwing_play::config::PolicyConfig;
use lapwing_tensor::{AdamW, Muon, Parameters, Tensor, rl::Kl};
use serde::{Deserialize, Serialize};

/// The maximum number of episodes of an evaluation. Drawing more scenes takes seconds without any output.
pub const MOST_EPISODES: usize = 100_000;

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

lapwing_env::options! {
    /// How the adapter, or the whole model, is trained.
    pub struct TrainConfig;
    /// Which weights are trained. `lora`: those of an adapter, which takes little memory. `all`: the model's own in 32 bits,
    /// which takes 20 bytes for each and 2 or 4 more for the reference. `all` is for small models and needs its own `lr`.
    weights: Weights = Weights::Lora;
    /// Training steps. 0: only evaluates. The paper: 700.
    steps: usize = 700;
    /// Scenes played in a step, with one group of episodes each. 1: the paper does not name it, and its text reads as one.
    groups: usize = 1, in Whole(1, 1 << 24);
    // A group of one episode has no advantages.
    /// G, the episodes of a group. The paper: 100.
    group_size: usize = 100, in Whole(2, 1 << 24);
    /// G', the episodes of a group that are trained on, at most `group_size`. The paper: 25. The default is
    /// lowered to a smaller `group_size`. No effect with `sampling = "all"`.
    learn: usize = 25, in Whole(1, usize::MAX);
    /// How the episodes to train on are selected: `aaw`, drawn without replacement with weights exp(|A|), as in the
    /// paper; `uniform`, drawn with equal weights; `top`, those of the largest absolute advantages; `variance`, those whose
    /// returns vary most (PODS); `all`, every episode.
    sampling: Sampling = Sampling::Aaw;
    /// Share of the groups that retry an earlier scene on which an episode did not succeed, as long as there is one; the others
    /// play new scenes. A scene is retried until its episodes have equal returns. So more of training is about what is not learned
    /// yet, as in prioritized level replay (arXiv 2010.03934). 0: every scene is new, as in the paper.
    retry: f64 = 0.0, in Real(0.0, 1.0);
    /// The episodes of a group also share the randomness after the start. Off: the advantage should average over luck.
    shared_luck: bool = false;
    /// Whose importance ratio is clipped: `token`, each token's (PPO); `turn`, the geometric mean of a turn; `episode`, that of
    /// an episode (GSPO). `token`: as in PPO. Like the four clip ranges below, no effect with one update in a step
    /// (`passes = 1` and `minibatches = 1`), whose ratio is exactly 1.
    ratio: Ratio = Ratio::Token;
    /// Clips a token's ratio below 1 - this. 0.2, as in PPO. Only with `ratio = "token"`.
    clip_low: f64 = 0.2, in Real(0.0, 1.0);
    /// Clips a token's ratio above 1 + this. 0.2, as in PPO. Only with `ratio = "token"`.
    clip_high: f64 = 0.2, in Real(0.0, f64::MAX);
    /// Clips a turn's ratio below 1 - the first and above 1 + the second. 0.01: a mean over a few tokens moves less than each of them. Only
    /// with `ratio = "turn"`.
    turn_clip: [f64; 2] = [0.01, 0.01];
    /// Clips an episode's ratio, likewise. GSPO's values for whole replies. Only with `ratio = "episode"`.
    episode_clip: [f64; 2] = [3e-4, 4e-4];
    /// Range of the mean entropy of a token, in nats. Outside of it, entropy becomes a part of the advantage. 0 to 100: no
    /// limit.
    entropy_band: [f64; 2] = [0.0, 100.0], in Real(0.0, 100.0);
    /// Weight of the entropy for each nat outside of the band. 0.1: a tenth of a standard deviation of the advantages.
    entropy_gain: f64 = 0.1, in Real(0.0, f64::MAX);
    /// The lower limit of the band falls linearly over `steps` to this share of itself. 1: it does not fall. 0 lets a policy that
    /// had to keep trying everything become certain.
    entropy_end: f64 = 1.0, in Real(0.0, 1.0);
    /// Weight of the KL penalty against the initial policy: the model without its adapter, or with the one that training
    /// started from; with `weights = "all"`, a copy of the initial model. If this is 0, the KL is not measured, and the update
    /// has one forward pass instead of two. Small: it prevents collapse and should not slow training.
    beta: f64 = 0.001, in Real(0.0, f64::MAX);
    /// Estimator of the KL penalty from one sample. `k3`, as in GRPO: its gradient is that of KL(reference, policy). `k2`: its
    /// gradient is that of KL(policy, reference). (The gradient of k1 is zero on average, so it is refused.)
    kl: Kl = Kl::K3;
    /// What the loss is a mean over: `token`, all tokens, so long replies and long episodes count more; `turn`, turns, each the
    /// mean of its tokens, so long episodes count more; `episode`, episodes, each the mean of its turns.
    /// `token`: our choice.
    aggregation: Aggregation = Aggregation::Token;
    /// Passes over a step's episodes. 1: the only fully on-policy choice.
    passes: usize = 1, in Whole(1, usize::MAX);
    /// Optimiser updates in a pass, each on a part of the episodes. With half as many as `groups` or fewer, the episodes of a group
    /// stay together, which computes fewer states twice. 1: as with `passes`, the only fully on-policy choice.
    minibatches: usize = 1, in Whole(1, usize::MAX);
    /// `adamw`, or `muon`, which makes the step of each matrix orthogonal: an adapter's, or with `weights = "all"` those of the
    /// model's blocks, whose other weights then follow AdamW at a tenth of the rate. `adamw`: the usual one. `muon` needs its
    /// own `lr` and an `lr_end` near 0.
    optimiser: Optimiser = Optimiser::AdamW;
    /// Learning rate of the optimiser. 1e-5: with AdamW, adapters need about ten times the rate of full training. The default is
    /// the same with `weights = "all"`, for which 1e-6 is usual in large models; the built-in model needs the same rate as its
    /// adapters. For Muon it is the length of a step: 0.003 for the built-in model.
    lr: f64 = 1e-5, in Real(0.0, f64::MAX);
    /// The learning rate falls linearly over `steps`, to this share of itself after the last step. 1: it does not fall. A run that
    /// is resumed with more steps then falls more slowly.
    lr_end: f64 = 1.0, in Real(0.0, 1.0);
    /// Steps in which the learning rate rises from 0. 0: Adam's bias correction suffices at this rate.
    warmup: usize = 0;
    /// Decoupled weight decay. 0: the KL penalty already keeps the adapter near the base.
    weight_decay: f64 = 0.0, in Real(0.0, f64::MAX);
    /// Decay of AdamW's two moments, each from 0 to just below 1. The usual values. Muon's momentum is always 0.95.
    betas: [f64; 2] = [0.9, 0.999];
    /// Clips the norm of the whole gradient. 1, the usual value.
    max_grad_norm: f64 = 1.0, in Positive(f64::MAX);
    /// Measures the noise of each step's gradient, at about the cost of its update. Off: training does not need it. Refused
    /// with `group_size` below 4, because it compares halves of a group.
    measure: bool = false;
    /// Seed of all random numbers, 0 to 2^63 - 1.
    seed: u64 = 1;
    /// Tokens that go through the model at once in an update (a micro-batch); a longer turn goes alone. Limits the memory;
    /// changes results only by rounding. 8192: our choice.
    tokens_per_batch: usize = 8192, in Whole(1, 1 << 24);
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

/// How gradients change the trained weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimiser {
    /// Each weight by its own moments.
    AdamW,
    /// Each matrix as a whole, in orthogonal steps.
    Muon,
}

/// How the episodes to train on are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampling {
    /// Drawn without replacement with weights exp(|A|) (the paper's). |A| of an episode whose turns differ is their root mean square.
    Aaw,
    /// Drawn without replacement, with equal weights.
    Uniform,
    /// Every episode.
    All,
    /// Those of the largest absolute advantages.
    Top,
    /// The subset whose returns have the largest variance (PODS, arXiv 2504.13818).
    Variance,
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

    /// Returns the learning rate of a step, which counts from 0.
    pub fn lr_at(&self, step: usize) -> f64 {
        let warm = ((step + 1) as f64 / (self.warmup + 1) as f64).min(1.0);
        self.lr * warm * self.falling_to(self.lr_end, step)
    }

    /// Returns the lower limit of the entropy at a step, which counts from 0.
    pub(crate) fn lowest_entropy_at(&self, step: usize) -> f64 {
        self.entropy_band[0] * self.falling_to(self.entropy_end, step)
    }

    /// Falls linearly over `steps` from 1 to `end`.
    fn falling_to(&self, end: f64, step: usize) -> f64 {
        let done = step.min(self.steps) as f64 / self.steps.max(1) as f64;
        1.0 - (1.0 - end) * done
    }

    /// Updates the weights of a policy with the gradients accumulated so far. Returns their norm before clipping.
    pub(crate) fn update(&self, parameters: &mut Parameters, lr: f64) -> Tensor {
        match self.optimiser {
            Optimiser::AdamW => parameters.step(self.adamw(lr)),
            Optimiser::Muon => {
                // The usual value.
                let muon = Muon { lr, momentum: 0.95 };
                // The matrices of an adapter, or those of the model's blocks.
                let is_matrix =
                    |name: &str| name.contains(".lora_") || name.ends_with("_proj.weight");
                parameters.step_muon(muon, self.adamw(lr / 10.0), is_matrix)
            }
        }
    }

    /// Returns the settings of AdamW with this learning rate.
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
    /// The tokens of an episode share theirs (GSPO, arXiv 2507.18071, with the episode as its sequence).
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

lapwing_env::options! {
    /// Credit assignment: the advantage of a turn. `train/learn/src/credit.rs` has the formulas.
    pub struct CreditConfig;
    /// Advantage estimator. `episode`: the episode's return compared with the mean of its group (MS-GRPO). `gigpo`:
    /// `episode`, plus the return to go compared with that of the group's other turns in the same state. `planning`: the return
    /// of the turn's action if the best actions that the group saw follow, compared with that of the group's other turns in the
    /// same state. `critic`: TD(lambda) with a critic that is trained beside the policy. `episode`: the paper's.
    method: AdvantageEstimator = AdvantageEstimator::Episode;
    /// Divisor of the advantages: `std`, their standard deviation in the group, so that all groups count alike (the paper's);
    /// `mean`, 1: only the mean is subtracted (Dr. GRPO); `batch`, their standard deviation in all groups of the step.
    normalise: AdvantageScale = AdvantageScale::Std;
    /// Discount per turn. 0.95, as in GiGPO. No effect on `episode`, which does not discount.
    gamma: f64 = 0.95, in Real(0.0, 1.0);
    /// Lambda of `critic`: 0 bootstraps after one turn, 1 uses the return to the end. 0.95, as in turn-level PPO.
    lambda: f64 = 0.95, in Real(0.0, 1.0);
    /// Weight of the state-level term of `gigpo`; no effect on others. 1, as published.
    omega: f64 = 1.0, in Real(0.0, f64::MAX);
}

/// Advantage estimator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdvantageEstimator {
    /// The episode's return compared with the mean of its group (MS-GRPO, arXiv 2508.10839).
    Episode,
    /// `episode`, plus the return to go compared with that of the group's other turns in the same state (GiGPO, arXiv
    /// 2505.10978).
    Gigpo,
    /// The value of the turn's action in a model of the game that counts what the group saw, compared with that of the
    /// group's other turns in the same state.
    Planning,
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

lapwing_env::options! {
    /// The critic of turn-level PPO ([`critic`](crate::critic)).
    pub struct CriticConfig;
    /// Width of the hidden layer. 64: enough for the values of a small game.
    hidden: usize = 64, in Whole(1, 1 << 16);
    /// Learning rate of its AdamW. 1e-3, usual for a small network with random weights.
    lr: f64 = 1e-3, in Real(0.0, f64::MAX);
    /// Passes over all turns of a step. 10: a pass is cheap, because the features are computed once.
    passes: usize = 10, in Whole(1, usize::MAX);
    /// Clips the change of a value in a step. 0.5, as in verl, for returns of about 1. Scale it with the returns of the game.
    clip: f64 = 0.5, in Positive(f64::MAX);
    /// First steps in which only the critic is trained, fewer than `train.steps`. 5: advantages from an untrained critic are
    /// plain returns with all their variance.
    warmup: usize = 5;
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

lapwing_env::options! {
    /// The network of `dqn` and `pqn`, and how it explores. The paper does not publish its network; these numbers are ours.
    pub struct ValueConfig;
    /// A file with the initial weights, for the same layers. Empty: random weights.
    network: String = String::new();
    /// Encodes the cells up to this distance from the agent, with the agent in the middle, so that a position is independent
    /// of its place on the board. 0: encodes the whole board.
    window: usize = 0, in Whole(0, 64);
    /// Adds the share of turns left as an input, and treats the step limit as a terminal state. Off: the value after the limit
    /// is bootstrapped.
    turns_left: bool = true;
    // More would exceed the device's memory, and the memory plan does not cover networks.
    /// Output planes of each 3x3 convolution, first to last. Empty: no convolution, the dense layers read the planes.
    channels: Vec<usize> = Vec::new(), in Whole(1, 1024);
    /// Widths of the dense layers before the last, at least one. Two of 256: our choice.
    hidden: Vec<usize> = vec![256, 256], in Whole(1, 8192);
    /// Discount per turn. 0.99, the usual value.
    gamma: f64 = 0.99, in Real(0.0, 1.0);
    /// Episodes of a step, each on its own scene, played together. 64: one forward pass serves all of them.
    episodes: usize = 64, in Whole(1, MOST_EPISODES);
    /// Final probability of a random action. 0.05, the usual value. Evaluations do not explore.
    epsilon: f64 = 0.05, in Real(0.0, 1.0);
    /// Steps in which the probability of a random action falls linearly from 1 to `epsilon`. 100: our choice.
    exploration: usize = 100;
    /// Turns of an update. 256: our choice.
    batch: usize = 256, in Whole(1, 1 << 16);
    /// Steps in which the learning rate falls linearly to a tenth. 0: it stays constant.
    anneal: usize = 0;
}

lapwing_env::options! {
    /// Settings of `dqn` beside `[value]`.
    pub struct DqnConfig;
    /// Turns in the replay buffer. Games of some twenty turns do not need the usual million.
    capacity: usize = 50_000, in Whole(1, 1 << 24);
    /// Turns in the replay buffer before the first update, at most `capacity`. 1000: our choice.
    start: usize = 1000;
    /// Updates per step. 16: our choice.
    updates: usize = 16, in Whole(1, 1 << 16);
    /// Updates between copies to the target network. 500, as in cleanrl.
    target: usize = 500, in Whole(1, 1 << 24);
    /// Turns of an n-step target. 3, as in Rainbow.
    n_step: usize = 3, in Whole(1, 1000);
    /// Exponent of the priorities: 0, uniform; 1, proportional to the error. 0.5, as in Rainbow.
    alpha: f64 = 0.5, in Real(0.0, 1.0);
    /// Initial exponent of the importance weights: 0, no correction; 1, full correction. 0.4, as in Rainbow.
    beta: f64 = 0.4, in Real(0.0, 1.0);
    /// Steps in which `dqn.beta` rises linearly to 1. 1000: our choice.
    beta_steps: usize = 1000;
}

lapwing_env::options! {
    /// Settings of `pqn` beside `[value]`.
    pub struct PqnConfig;
    /// Lambda of the targets: 0, one turn ahead; 1, to the end of the episode. 0.65, as in the paper of PQN.
    lambda: f64 = 0.65, in Real(0.0, 1.0);
    /// Passes over a step's turns. 2: with 4, as in cleanrl, a step improved little more and took longer.
    passes: usize = 2, in Whole(1, 1000);
}
