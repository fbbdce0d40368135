//! Rotary position embedding as `config.json` says it.

use serde_json::{Map, Value, json};

use super::fields::JsonFields;
use crate::{ModelError, Rope, RopeScaling};

impl Rope {
    /// Reads both spellings: `rope_parameters` (transformers 5), or `rope_theta` beside `rope_scaling`. Of a config with
    /// both, transformers takes `rope_scaling`.
    pub(crate) fn read(config: &JsonFields) -> Result<Rope, ModelError> {
        let filled = |field| -> Result<Option<JsonFields>, ModelError> {
            let fields = config.object(field)?;
            Ok(fields.filter(|fields| fields.names().next().is_some()))
        };
        let nested = match filled("rope_scaling")? {
            Some(fields) => Some(fields),
            None => filled("rope_parameters")?,
        };
        let inner_theta = nested
            .as_ref()
            .map(|f| f.positive("rope_theta"))
            .transpose()?
            .flatten();
        let theta = match inner_theta {
            Some(theta) => theta,
            // 10,000 is what transformers assumes for all our families.
            None => config.positive("rope_theta")?.unwrap_or(10_000.0),
        };
        refuse_partial(config)?;
        let Some(fields) = nested else {
            return Ok(Rope {
                theta,
                scaling: RopeScaling::None,
            });
        };
        refuse_partial(&fields)?;
        Ok(Rope {
            theta,
            scaling: RopeScaling::read(&fields)?,
        })
    }

    /// `rope_theta` and `rope_scaling`, the spelling that every version of transformers reads.
    pub(crate) fn write(&self, config: &mut Map<String, Value>) {
        config.insert("rope_theta".into(), json!(self.theta));
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
        config.insert("rope_scaling".into(), scaling);
    }
}

/// Only whole heads are turned here.
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
        if fields.has("full_attention") || fields.has("sliding_attention") {
            return Err(fields.wrong(
                "full_attention",
                "rope parameters per layer type are not supported",
            ));
        }
        let field = if fields.has("rope_type") {
            "rope_type"
        } else {
            "type"
        };
        match fields.text(field)?.unwrap_or("default") {
            "default" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear {
                factor: fields.required_positive("factor")?,
            }),
            "llama3" => RopeScaling::read_llama3(fields),
            other => {
                let known = "supported are default, linear and llama3";
                Err(fields.wrong(
                    field,
                    format!("rope type \"{other}\" is not supported; {known}"),
                ))
            }
        }
    }

    fn read_llama3(fields: &JsonFields) -> Result<RopeScaling, ModelError> {
        let factor = fields.required_positive("factor")?;
        let low = fields.required_positive("low_freq_factor")?;
        let high = fields.required_positive("high_freq_factor")?;
        let original_positions = fields.required_positive("original_max_position_embeddings")?;
        if high <= low {
            return Err(fields.wrong(
                "high_freq_factor",
                format!("{high} is not above low_freq_factor {low}"),
            ));
        }
        Ok(RopeScaling::Llama3 {
            factor,
            low,
            high,
            original_positions,
        })
    }
}
