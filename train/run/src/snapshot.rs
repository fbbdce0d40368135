//! What a run has learned, as plain data.

use lapwing_tensor::{NamedValues, ParameterState};
use serde::{Deserialize, Serialize};

/// When the policy was examined best, and how well.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// training steps done by then
    pub step: usize,
    /// the mean return
    pub score: f64,
}

/// What a run has learned so far, as plain data: all of a [`State`](crate::state::State) that its config does not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Snapshot {
    /// steps of training done
    pub step: usize,
    /// what the next step is sampled at
    pub temperature: f64,
    /// the step of the last evaluation
    pub evaluated: Option<usize>,
    /// the best evaluation
    pub best: Option<Best>,
    /// optimiser updates done
    pub updates: u64,
    /// the weights that learn and the optimiser's moments
    pub parameters: Vec<ParameterState>,
    /// optimiser updates of the critic
    pub critic_updates: u64,
    /// its weights and moments; empty without a critic
    pub critic: Vec<ParameterState>,
    /// what a learner remembers beside them: the replay and the target network of DQN
    pub memory: Vec<NamedValues>,
}
