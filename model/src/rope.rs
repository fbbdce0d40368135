//! Rotary position embedding: how fast each pair of a head's numbers turns with the position.

use serde_json::{Map, Value, json};

use crate::ModelError;
use crate::fields::Fields;

/// The base of the frequencies and what stretches them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// The base: pair `i` of a head of size D turns by `theta^(-2i/D)` radians per position.
    pub theta: f64,
    /// How a model trained on short texts was taught longer ones.
    pub scaling: Scaling,
}

/// How the frequencies are changed for texts longer than the first training saw.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All frequencies divided by the factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// Llama 3.1: slow turns are divided by the factor, fast ones kept, those between blended.
    Llama3 {
        /// The divisor of the slow turns.
        factor: f64,
        /// Turns slower than this many times per original context are divided.
        low: f64,
        /// Turns faster than this many times per original context are kept.
        high: f64,
        /// Positions the first training saw.
        original_positions: f64,
    },
}

impl Rope {
    /// Reads both spellings: `rope_parameters` (transformers 5), or `rope_theta` beside `rope_scaling`. Of a config with
    /// both, transformers takes `rope_scaling`.
    pub(crate) fn read(config: &Fields) -> Result<Rope, ModelError> {
        let filled = |field| -> Result<Option<Fields>, ModelError> {
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
                scaling: Scaling::None,
            });
        };
        refuse_partial(&fields)?;
        Ok(Rope {
            theta,
            scaling: Scaling::read(&fields)?,
        })
    }

    /// Radians per position of each pair of a head of size D, as transformers computes them: D/2 numbers.
    pub fn inverse_frequencies(&self, head_size: usize) -> Vec<f32> {
        let pairs = head_size / 2;
        let plain = (0..pairs).map(|i| self.theta.powf(-2.0 * i as f64 / head_size as f64));
        plain
            .map(|frequency| self.scaling.apply(frequency) as f32)
            .collect()
    }

    /// `rope_theta` and `rope_scaling`, the spelling that every version of transformers reads.
    pub(crate) fn write(&self, config: &mut Map<String, Value>) {
        config.insert("rope_theta".into(), json!(self.theta));
        let scaling = match &self.scaling {
            Scaling::None => Value::Null,
            Scaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            Scaling::Llama3 {
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
fn refuse_partial(fields: &Fields) -> Result<(), ModelError> {
    match fields.positive("partial_rotary_factor")? {
        Some(part) if part != 1.0 => Err(fields.wrong(
            "partial_rotary_factor",
            format!("{part} is not supported, only 1"),
        )),
        _ => Ok(()),
    }
}

impl Scaling {
    fn read(fields: &Fields) -> Result<Scaling, ModelError> {
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
            "default" => Ok(Scaling::None),
            "linear" => Ok(Scaling::Linear {
                factor: fields.required_positive("factor")?,
            }),
            "llama3" => Scaling::read_llama3(fields),
            other => {
                let known = "supported are default, linear and llama3";
                Err(fields.wrong(
                    field,
                    format!("rope type \"{other}\" is not supported; {known}"),
                ))
            }
        }
    }

    fn read_llama3(fields: &Fields) -> Result<Scaling, ModelError> {
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
        Ok(Scaling::Llama3 {
            factor,
            low,
            high,
            original_positions,
        })
    }

    fn apply(&self, frequency: f64) -> f64 {
        match *self {
            Scaling::None => frequency,
            Scaling::Linear { factor } => frequency / factor,
            Scaling::Llama3 {
                factor,
                low,
                high,
                original_positions,
            } => {
                let turns = original_positions * frequency / std::f64::consts::TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                kept * frequency + (1.0 - kept) * frequency / factor
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_frequencies_fall_from_one_by_a_constant_ratio() {
        let rope = Rope {
            theta: 10_000.0,
            scaling: Scaling::None,
        };
        assert_eq!(rope.inverse_frequencies(8), [1.0, 0.1, 0.01, 0.001]);
    }

    #[test]
    fn llama3_keeps_fast_turns_and_divides_slow_ones() {
        let scaling = Scaling::Llama3 {
            factor: 8.0,
            low: 1.0,
            high: 4.0,
            original_positions: 64.0,
        };
        let turns = |n: f64| n * std::f64::consts::TAU / 64.0;
        assert_eq!(scaling.apply(turns(5.0)), turns(5.0));
        assert_eq!(scaling.apply(turns(0.5)), turns(0.5) / 8.0);
        // Half-way between the factors: the mean of kept and divided.
        let middle = scaling.apply(turns(2.5));
        assert!((middle - turns(2.5) * (1.0 + 0.125) / 2.0).abs() < 1e-12);
    }
}
