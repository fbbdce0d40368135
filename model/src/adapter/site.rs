//! One adapted layer: its place, rank and names.

use crate::{Linear, ModelConfig};

/// An adapted linear layer; the head belongs to block 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoraSite {
    pub(crate) layer: usize,
    pub(crate) linear: Linear,
    pub(crate) rank: usize,
    pub(crate) alpha: f64,
}

impl LoraSite {
    /// Returns the names of A and B in PEFT's files, which are also their names in the parameters.
    pub(crate) fn names(&self) -> [String; 2] {
        LoraSite::names_of(self.layer, self.linear)
    }

    pub(crate) fn names_of(layer: usize, linear: Linear) -> [String; 2] {
        let module = linear.module(layer);
        ["A", "B"].map(|side| format!("base_model.model.{module}.lora_{side}.weight"))
    }

    /// Returns the shapes of A (r, K) and B (N, r).
    pub(crate) fn shapes(&self, config: &ModelConfig) -> [Vec<usize>; 2] {
        let (n, k) = config.linear_shape(self.linear);
        [vec![self.rank, k], vec![n, self.rank]]
    }

    pub(crate) fn scale(&self, rslora: bool) -> f32 {
        let rank = self.rank as f64;
        (self.alpha / if rslora { rank.sqrt() } else { rank }) as f32
    }
}
