//! The section `[critic]`: the critic of `credit.method = "critic"`.

use serde::{Deserialize, Serialize};

/// What learns to tell how much a state is worth. [`learn::critic`](crate::learn::critic) is the method.
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
