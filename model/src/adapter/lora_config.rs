//! What to adapt, and how strongly: the knobs of a new adapter, and what is known of a loaded one.

use serde::{Deserialize, Serialize};

use crate::{Linear, ModelConfig, ModelError, Targets};

/// The adapter: low-rank matrices beside frozen weights. In a file it is a table of these fields; one that is left out
/// has its default, and one that is not known is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Rank of the adapter's matrices: columns of B, rows of A. 16: small ranks suffice for learning from rewards, which
    /// say little per episode. Of a loaded adapter, the rank where nothing else is said of a layer.
    pub rank: usize,
    /// The low-rank term is scaled by alpha / rank. 32: twice the rank, as most published adapters have it.
    pub alpha: f64,
    /// The linear layers that get an adapter, as PEFT's `target_modules`: a list of names such as `q_proj` or
    /// `model.layers.0.mlp.up_proj`; a regular expression for the whole name; or `all-linear`, the default, which the
    /// paper does. That leaves out the head (`lm_head`): it is the largest matrix of a small model, and the published
    /// models know the words already.
    pub targets: Targets,
    /// Scale by alpha / sqrt(rank) instead (rank-stabilised, Kalajdzievski 2023). Off, as in PEFT.
    pub rslora: bool,
}

impl Default for LoraConfig {
    fn default() -> LoraConfig {
        LoraConfig {
            rank: 16,
            alpha: 32.0,
            targets: Targets::default(),
            rslora: false,
        }
    }
}

impl LoraConfig {
    /// Numbers in A and B of all layers that it adapts in such a model.
    ///
    /// # Errors
    /// If its targets name no layer of this model.
    pub fn parameters(&self, model: &ModelConfig) -> Result<u64, ModelError> {
        let layers = self.targets.layers(model)?;
        let count = |(_, linear): &(usize, Linear)| {
            let (n, k) = model.linear_shape(*linear);
            (self.rank * (n + k)) as u64
        };
        Ok(layers.iter().map(count).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Configs of runs hold this table, and adapters are told apart by it: its fields and their order must not move.
    #[test]
    fn its_written_form_stays() {
        let written = serde_json::to_string(&LoraConfig::default()).unwrap();
        let wanted = r#"{"rank":16,"alpha":32.0,"targets":"all-linear","rslora":false}"#;
        assert_eq!(written, wanted);
        let read = |text: &str| serde_json::from_str::<LoraConfig>(text);
        let named = LoraConfig {
            rank: 4,
            targets: [Linear::Q, Linear::Head].into(),
            ..LoraConfig::default()
        };
        let text = r#"{"targets": ["q_proj", "lm_head"], "rank": 4}"#;
        assert_eq!(read(text).unwrap(), named);
        let error = read(r#"{"dropout": 0.1}"#).unwrap_err().to_string();
        assert!(error.contains("unknown field `dropout`"), "{error}");
    }
}
