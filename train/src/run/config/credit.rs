//! The section `[credit]`: who of the turns of an episode gets the credit for what came of it.

use serde::{Deserialize, Serialize};

/// What the advantage of a turn is. [`learn::credit`](crate::learn::credit) has the formulas.
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
