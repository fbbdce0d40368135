//! Reads and writes Hugging Face's `config.json`. Absent fields have the defaults of the family's class in transformers.

use std::path::Path;

use serde_json::{Value, json};

use super::disk;
use super::fields::{JsonFields, read_object};
use crate::{ModelConfig, ModelError, ModelFamily, Rope};

// Far more than any published model has. Larger values are refused before anything is allocated; the shapes in the weight files
// are compared, too.
pub(crate) const MOST_TOKENS: usize = 1 << 22;
pub(super) const MOST_WIDTH: usize = 1 << 17;
pub(super) const MOST_LAYERS: usize = 1 << 10;
pub(super) const MOST_POSITIONS: usize = 1 << 28;

impl ModelConfig {
    /// Reads `config.json` and, where present, `generation_config.json`.
    ///
    /// # Errors
    /// A file cannot be read, a field is missing or out of range, or a feature is not supported.
    pub fn read(dir: &Path) -> Result<ModelConfig, ModelError> {
        let path = dir.join("config.json");
        let map = read_object(&path)?;
        let mut config = ModelConfig::parse(&JsonFields::new(&path, &map))?;
        let path = dir.join("generation_config.json");
        if disk::exists(&path) {
            let map = read_object(&path)?;
            let ids = JsonFields::new(&path, &map).token_ids("eos_token_id")?;
            config.eos.extend(ids);
        }
        config.eos.sort_unstable();
        config.eos.dedup();
        Ok(config)
    }

    fn parse(fields: &JsonFields) -> Result<ModelConfig, ModelError> {
        let family = ModelFamily::read(fields)?;
        refuse_unsupported(fields)?;
        let width = fields.required_count("hidden_size", MOST_WIDTH)?;
        let layers = fields.required_count("num_hidden_layers", MOST_LAYERS)?;
        refuse_sliding_windows(fields, layers)?;
        let heads = fields.required_count("num_attention_heads", MOST_WIDTH)?;
        // Null means the number of heads in every family.
        let absent = fields.is_absent("num_key_value_heads") && family != ModelFamily::Llama;
        let kv_heads = fields
            .count("num_key_value_heads", MOST_WIDTH)?
            .unwrap_or(if absent { 32 } else { heads });
        if heads % kv_heads != 0 {
            let problem = format!("{kv_heads} does not divide num_attention_heads {heads}");
            return Err(fields.wrong("num_key_value_heads", problem));
        }
        let attention_bias = fields.flag("attention_bias")?;
        let is_llama = family == ModelFamily::Llama;
        let most_positions = if is_llama { 2048 } else { 32_768 };
        Ok(ModelConfig {
            family,
            vocab: fields.required_count("vocab_size", MOST_TOKENS)?,
            width,
            layers,
            heads,
            kv_heads,
            head_size: read_head_size(fields, family, width, heads)?,
            mlp_width: fields.required_count("intermediate_size", MOST_WIDTH * 8)?,
            eps: fields.positive("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            rope: Rope::read(fields)?,
            tied: fields.flag("tie_word_embeddings")?,
            // Qwen2 has these biases whatever its config says.
            qkv_bias: family == ModelFamily::Qwen2 || attention_bias,
            o_bias: family != ModelFamily::Qwen2 && attention_bias,
            mlp_bias: is_llama && fields.flag("mlp_bias")?,
            max_positions: fields
                .count("max_position_embeddings", MOST_POSITIONS)?
                .unwrap_or(most_positions),
            eos: match is_llama && fields.is_absent("eos_token_id") {
                true => vec![2],
                false => fields.token_ids("eos_token_id")?,
            },
        })
    }

    /// Returns a `config.json` that every version of transformers reads; `dtype` is "float16", "bfloat16" or "float32".
    pub fn to_json(&self, dtype: &str) -> Value {
        let decimal = self.eps.to_string().parse::<f64>();
        let (theta, scaling) = self.rope.to_json();
        json!({
            "architectures": [self.family.architecture()],
            "model_type": self.family.model_type(),
            "attention_dropout": 0.0,
            "attention_bias": self.qkv_bias && self.family != ModelFamily::Qwen2,
            "mlp_bias": self.mlp_bias,
            "bos_token_id": null,
            "eos_token_id": match &self.eos[..] {
                [] => Value::Null,
                [one] => json!(one),
                many => json!(many),
            },
            "head_dim": self.head_size,
            "hidden_act": "silu",
            "hidden_size": self.width,
            "intermediate_size": self.mlp_width,
            "max_position_embeddings": self.max_positions,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": decimal.expect("a float prints as one"),
            "tie_word_embeddings": self.tied,
            "torch_dtype": dtype,
            "use_cache": true,
            "vocab_size": self.vocab,
            "rope_theta": theta,
            "rope_scaling": scaling,
        })
    }
}

impl ModelFamily {
    fn read(fields: &JsonFields) -> Result<ModelFamily, ModelError> {
        let name = fields.text("model_type")?;
        let name = name.ok_or_else(|| fields.wrong("model_type", "missing"))?;
        ModelFamily::named(name).ok_or_else(|| {
            let problem =
                format!("\"{name}\" is not supported; supported are qwen2, qwen3 and llama");
            fields.wrong("model_type", problem)
        })
    }

    /// Returns the family with this [`model_type`](ModelFamily::model_type).
    pub(super) fn named(model_type: &str) -> Option<ModelFamily> {
        let all = [ModelFamily::Qwen2, ModelFamily::Qwen3, ModelFamily::Llama];
        all.into_iter().find(|it| it.model_type() == model_type)
    }

    /// Returns the `model_type` of `config.json`.
    pub fn model_type(self) -> &'static str {
        match self {
            ModelFamily::Qwen2 => "qwen2",
            ModelFamily::Qwen3 => "qwen3",
            ModelFamily::Llama => "llama",
        }
    }

    fn architecture(self) -> &'static str {
        match self {
            ModelFamily::Qwen2 => "Qwen2ForCausalLM",
            ModelFamily::Qwen3 => "Qwen3ForCausalLM",
            ModelFamily::Llama => "LlamaForCausalLM",
        }
    }
}

fn read_head_size(
    fields: &JsonFields,
    family: ModelFamily,
    width: usize,
    heads: usize,
) -> Result<usize, ModelError> {
    let size = match fields.count("head_dim", 1024)? {
        Some(size) => size,
        None if family == ModelFamily::Qwen3 => 128,
        None if width.is_multiple_of(heads) => width / heads,
        None => {
            let problem =
                format!("{heads} does not divide hidden_size {width}, and there is no head_dim");
            return Err(fields.wrong("num_attention_heads", problem));
        }
    };
    check_head_size(size, heads).map_err(|problem| fields.wrong("head_dim", problem))?;
    Ok(size)
}

/// Returns an error unless the attention kernel can process such heads.
pub(super) fn check_head_size(size: usize, heads: usize) -> Result<(), String> {
    if size.is_multiple_of(4) && (4..=256).contains(&size) && heads * size <= MOST_WIDTH {
        return Ok(());
    }
    Err(format!(
        "{heads} heads of {size}; supported: a multiple of 4 up to 256, heads at most {MOST_WIDTH} wide together"
    ))
}

/// Refuses features without which the model would compute other numbers.
fn refuse_unsupported(fields: &JsonFields) -> Result<(), ModelError> {
    const EXPERTS: &str = "mixtures of experts are not supported";
    const QUANTISED: &str =
        "quantised weights are not supported; load the checkpoint in 16 or 32 bits instead";
    for (field, problem) in [
        ("num_experts", EXPERTS),
        ("num_local_experts", EXPERTS),
        ("moe_intermediate_size", EXPERTS),
        ("quantization_config", QUANTISED),
        ("compression_config", QUANTISED),
    ] {
        if fields.get(field).is_some() {
            return Err(fields.wrong(field, problem));
        }
    }
    match fields.text("hidden_act")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => {
            let problem = format!("\"{other}\" is not supported, only silu");
            Err(fields.wrong("hidden_act", problem))
        }
    }
}

/// Refuses a window that some layer uses. Published Qwen2 configs name one and disable it.
fn refuse_sliding_windows(fields: &JsonFields, layers: usize) -> Result<(), ModelError> {
    if let Some(Value::Array(types)) = fields.get("layer_types") {
        let other = types.iter().find(|t| t.as_str() != Some("full_attention"));
        return other.map_or(Ok(()), |other| {
            let problem = format!("{other} is not supported, only full_attention");
            Err(fields.wrong("layer_types", problem))
        });
    }
    let first = match fields.get("max_window_layers") {
        Some(value) => value.as_u64().unwrap_or(0) as usize,
        None => 28,
    };
    // An absent window is one of 4096; null is none.
    let window = fields.get("sliding_window").is_some() || fields.is_absent("sliding_window");
    if fields.flag("use_sliding_window")? && window && first < layers {
        let problem = "sliding-window attention is not supported";
        return Err(fields.wrong("use_sliding_window", problem));
    }
    Ok(())
}
