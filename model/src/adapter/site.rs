//! One adapted linear layer: which it is, and how its low-rank term is called, shaped and scaled.

use crate::{Config, Linear};

/// One adapted linear layer; the head counts as of block 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Site {
    pub(crate) layer: usize,
    pub(crate) linear: Linear,
    pub(crate) rank: usize,
    pub(crate) alpha: f64,
}

impl Site {
    /// The names of A and B in PEFT's files, which are also their names in the parameters.
    pub(crate) fn names(&self) -> [String; 2] {
        Site::names_of(self.layer, self.linear)
    }

    pub(crate) fn names_of(layer: usize, linear: Linear) -> [String; 2] {
        let module = linear.module(layer);
        ["A", "B"].map(|side| format!("base_model.model.{module}.lora_{side}.weight"))
    }

    /// The shapes of A (r, K) and B (N, r).
    pub(crate) fn shapes(&self, config: &Config) -> [Vec<usize>; 2] {
        let (n, k) = config.linear_shape(self.linear);
        [vec![self.rank, k], vec![n, self.rank]]
    }

    /// What the low-rank term is multiplied by.
    pub(crate) fn scale(&self, rslora: bool) -> f32 {
        let rank = self.rank as f64;
        (self.alpha / if rslora { rank.sqrt() } else { rank }) as f32
    }
}
