//! The settings of an adapter.

use serde::{Deserialize, Serialize};

use crate::{Linear, ModelConfig, ModelError, Targets};

/// The adapter: low-rank matrices beside frozen weights. In a config file this is a table; omitted fields have their defaults, and
/// unknown fields are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Rank of the adapter's matrices: columns of B, rows of A. In a loaded adapter, the rank of layers without one of their own.
    pub rank: usize,
    /// The low-rank term is scaled by alpha / rank.
    pub alpha: f64,
    /// The linear layers that get an adapter.
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
    /// Returns the number of trained numbers in a model.
    ///
    /// # Errors
    /// The targets select no layer of this model.
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
