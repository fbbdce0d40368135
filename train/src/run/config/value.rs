//! What learns, and the knobs of the learners that read no words.

use serde::{Deserialize, Serialize};

/// What learns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learner {
    /// A language model, by MS-GRPO.
    #[default]
    MsGrpo,
    /// A network on the board, by DQN with replay.
    Dqn,
    /// A network on the board, by Q(lambda) on what was just played.
    Pqn,
}

impl Learner {
    /// Its word in a config.
    pub fn name(self) -> &'static str {
        match self {
            Learner::MsGrpo => "ms-grpo",
            Learner::Dqn => "dqn",
            Learner::Pqn => "pqn",
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
