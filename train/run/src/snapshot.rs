//! Snapshots: the learned state of a run as plain data.

use lapwing_tensor::{NamedValues, ParameterState};
use serde::{Deserialize, Serialize};

/// The best evaluation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// training steps before it
    pub step: usize,
    /// its mean return
    pub score: f64,
}

/// The part of a [`State`](crate::state::State) that does not follow from its config.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// training steps done
    pub step: usize,
    /// sampling temperature of the next step
    pub temperature: f64,
    /// the step of the last evaluation
    pub evaluated: Option<usize>,
    /// the best evaluation
    pub best: Option<Best>,
    /// optimiser updates done
    pub updates: u64,
    /// trained weights and the optimiser's moments
    pub parameters: Vec<ParameterState>,
    /// optimiser updates of the critic
    pub critic_updates: u64,
    /// weights and moments of the critic; empty without one
    pub critic: Vec<ParameterState>,
    /// further state of the learner: the replay and the target network of DQN
    pub memory: Vec<NamedValues>,
}
