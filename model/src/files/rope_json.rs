//! Reads and writes the rotary position embedding of `config.json`.

use serde_json::{Value, json};

use super::fields::JsonFields;
use crate::{ModelError, Rope, RopeScaling};

impl Rope {
    /// Reads `rope_theta` and `rope_scaling`, or `rope_parameters` (transformers 5). If both are present, `rope_scaling` is used,
    /// as in transformers.
    pub(crate) fn read(config: &JsonFields) -> Result<Rope, ModelError> {
        refuse_partial(config)?;
        let mut nested = None;
        for field in ["rope_parameters", "rope_scaling"] {
            let fields = config.object(field)?;
            nested = fields.filter(|f| f.names().next().is_some()).or(nested);
        }
        let (mut theta, mut scaling) = (None, RopeScaling::None);
        if let Some(fields) = &nested {
            refuse_partial(fields)?;
            theta = fields.positive("rope_theta")?;
            scaling = RopeScaling::read(fields)?;
        }
        if theta.is_none() {
            theta = config.positive("rope_theta")?;
        }
        // transformers' default for all supported families.
        let theta = theta.unwrap_or(10_000.0);
        Ok(Rope { theta, scaling })
    }

    /// Returns `rope_theta` and `rope_scaling`, the spelling that every version of transformers reads.
    pub(crate) fn to_json(&self) -> (f64, Value) {
        let scaling = match &self.scaling {
            RopeScaling::None => Value::Null,
            RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            RopeScaling::Llama3 {
                factor,
                low,
                high,
                original_positions,
            } => json!({
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": *original_positions as u64,
            }),
        };
        (self.theta, scaling)
    }
}

/// Refuses rotations of a part of each head.
fn refuse_partial(fields: &JsonFields) -> Result<(), ModelError> {
    match fields.positive("partial_rotary_factor")? {
        Some(part) if part != 1.0 => Err(fields.wrong(
            "partial_rotary_factor",
            format!("{part} is not supported, only 1"),
        )),
        _ => Ok(()),
    }
}

impl RopeScaling {
    fn read(fields: &JsonFields) -> Result<RopeScaling, ModelError> {
        let by_layer = ["full_attention", "sliding_attention"];
        if by_layer.iter().any(|field| fields.get(field).is_some()) {
            let problem = "rope parameters per layer type are not supported";
            return Err(fields.wrong("full_attention", problem));
        }
        let old = fields.get("rope_type").is_none();
        let field = if old { "type" } else { "rope_type" };
        match fields.text(field)?.unwrap_or("default") {
            "default" => Ok(RopeScaling::None),
            "linear" => {
                let factor = fields.required_positive("factor")?;
                Ok(RopeScaling::Linear { factor })
            }
            "llama3" => {
                let factor = fields.required_positive("factor")?;
                let low = fields.required_positive("low_freq_factor")?;
                let high = fields.required_positive("high_freq_factor")?;
                let original_positions =
                    fields.required_positive("original_max_position_embeddings")?;
                if high <= low {
                    let problem = format!("{high} is not above low_freq_factor {low}");
                    return Err(fields.wrong("high_freq_factor", problem));
                }
                Ok(RopeScaling::Llama3 {
                    factor,
                    low,
                    high,
                    original_positions,
                })
            }
            other => {
                let problem = format!(
                    "rope type \"{other}\" is not supported; supported are default, linear and llama3"
                );
                Err(fields.wrong(field, problem))
            }
        }
    }
}
