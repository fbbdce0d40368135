//! The learned state of a run as plain data.

use lapwing_tensor::{NamedValues, ParameterState};
use serde::{Deserialize, Serialize};

/// The best evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// training steps completed
    pub step: usize,
    /// the mean return
    pub score: f64,
}

/// The learned state of a run as plain data: everything in a [`State`](crate::state::State) that does not follow from
/// its config.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// training steps completed
    pub step: usize,
    /// world and scene of the groups to retry
    pub unsolved: Vec<(usize, u64)>,
    /// the step of the last evaluation
    pub evaluated: Option<usize>,
    /// the best evaluation
    pub best: Option<Best>,
    /// optimiser updates made
    pub updates: u64,
    /// the trained weights and the optimiser's moments
    pub parameters: Vec<ParameterState>,
    /// optimiser updates of the critic
    pub critic_updates: u64,
    /// its weights and moments; empty without a critic
    pub critic: Vec<ParameterState>,
    /// a learner's other memory: the replay and the target network of DQN
    pub memory: Vec<NamedValues>,
}
