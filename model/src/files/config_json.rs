//! A Hugging Face `config.json`, read and written. Defaults for absent fields are those of the family's class in
//! transformers.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::disk;
use super::fields::{JsonFields, read_object};
use crate::{ModelConfig, ModelError, ModelFamily, Rope};

// No published model comes near these; what exceeds them is a mistake or an attack, and is refused before anything is
// allocated. (The shapes in the weight files are compared as well, so a lying config never allocates.)
const MOST_TOKENS: usize = 1 << 22;
const MOST_WIDTH: usize = 1 << 17;
const MOST_LAYERS: usize = 1 << 10;
const MOST_POSITIONS: usize = 1 << 28;

impl ModelConfig {
    /// Reads `config.json` and, where present, `generation_config.json`.
    ///
    /// # Errors
    /// A file that cannot be read, a field that is missing or absurd, or a feature that lapwing does not have.
    pub fn read(dir: &Path) -> Result<ModelConfig, ModelError> {
        let path = dir.join("config.json");
        let map = read_object(&path)?;
        let mut config = ModelConfig::parse(&JsonFields::new(&path, &map))?;
        let path = dir.join("generation_config.json");
        if disk::exists(&path) {
            let map = read_object(&path)?;
            config
                .eos
                .extend(JsonFields::new(&path, &map).token_ids("eos_token_id")?);
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
        // Null says "as many as there are heads" in every family.
        let absent = fields.is_absent("num_key_value_heads") && family != ModelFamily::Llama;
        let kv_heads = fields
            .count("num_key_value_heads", MOST_WIDTH)?
            .unwrap_or(if absent { 32 } else { heads });
        if heads % kv_heads != 0 {
            let problem = format!("{kv_heads} does not divide num_attention_heads {heads}");
            return Err(fields.wrong("num_key_value_heads", problem));
        }
        let attention_bias = fields.flag("attention_bias")?;
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
            // Qwen2 has these biases whatever its config says; the other families say.
            qkv_bias: family == ModelFamily::Qwen2 || attention_bias,
            o_bias: family != ModelFamily::Qwen2 && attention_bias,
            mlp_bias: family == ModelFamily::Llama && fields.flag("mlp_bias")?,
            max_positions: fields
                .count("max_position_embeddings", MOST_POSITIONS)?
                .unwrap_or(if family == ModelFamily::Llama {
                    2048
                } else {
                    32_768
                }),
            eos: match family == ModelFamily::Llama && fields.is_absent("eos_token_id") {
                true => vec![2],
                false => fields.token_ids("eos_token_id")?,
            },
        })
    }

    /// A `config.json` that transformers reads, in the spelling that all its versions know; `dtype` is "float16",
    /// "bfloat16" or "float32".
    pub fn to_json(&self, dtype: &str) -> Value {
        let mut map = Map::new();
        let mut put = |field: &str, value: Value| map.insert(field.to_owned(), value);
        put("architectures", json!([self.family.architecture()]));
        put("model_type", json!(self.family.model_type()));
        put("attention_dropout", json!(0.0));
        put(
            "attention_bias",
            json!(self.qkv_bias && self.family != ModelFamily::Qwen2),
        );
        put("mlp_bias", json!(self.mlp_bias));
        put("bos_token_id", Value::Null);
        put("eos_token_id", eos_json(&self.eos));
        put("head_dim", json!(self.head_size));
        put("hidden_act", json!("silu"));
        put("hidden_size", json!(self.width));
        put("intermediate_size", json!(self.mlp_width));
        put("max_position_embeddings", json!(self.max_positions));
        put("num_attention_heads", json!(self.heads));
        put("num_hidden_layers", json!(self.layers));
        put("num_key_value_heads", json!(self.kv_heads));
        put(
            "rms_norm_eps",
            json!(
                self.eps
                    .to_string()
                    .parse::<f64>()
                    .expect("a float prints as one")
            ),
        );
        put("tie_word_embeddings", json!(self.tied));
        put("torch_dtype", json!(dtype));
        put("use_cache", json!(true));
        put("vocab_size", json!(self.vocab));
        self.rope.write(&mut map);
        Value::Object(map)
    }
}

fn eos_json(eos: &[u32]) -> Value {
    match eos {
        [] => Value::Null,
        [one] => json!(one),
        many => json!(many),
    }
}

impl ModelFamily {
    fn read(fields: &JsonFields) -> Result<ModelFamily, ModelError> {
        match fields.text("model_type")? {
            Some("qwen2") => Ok(ModelFamily::Qwen2),
            Some("qwen3") => Ok(ModelFamily::Qwen3),
            Some("llama") => Ok(ModelFamily::Llama),
            Some(other) => {
                let known = "supported are qwen2, qwen3 and llama";
                Err(fields.wrong(
                    "model_type",
                    format!("\"{other}\" is not supported; {known}"),
                ))
            }
            None => Err(fields.wrong("model_type", "missing")),
        }
    }

    /// How `config.json` calls it.
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
    // What the attention kernel takes.
    if size % 4 != 0 || size > 256 || heads * size > MOST_WIDTH {
        let wanted = format!("a multiple of 4 up to 256, heads at most {MOST_WIDTH} wide together");
        return Err(fields.wrong(
            "head_dim",
            format!("{heads} heads of {size}; supported: {wanted}"),
        ));
    }
    Ok(size)
}

/// Features whose absence would change the numbers without a word.
fn refuse_unsupported(fields: &JsonFields) -> Result<(), ModelError> {
    for field in ["num_experts", "num_local_experts", "moe_intermediate_size"] {
        if fields.has(field) {
            return Err(fields.wrong(field, "mixtures of experts are not supported"));
        }
    }
    for field in ["quantization_config", "compression_config"] {
        if fields.has(field) {
            let cure = "load the checkpoint in 16 or 32 bits instead";
            return Err(fields.wrong(
                field,
                format!("quantised weights are not supported; {cure}"),
            ));
        }
    }
    match fields.text("hidden_act")? {
        None | Some("silu" | "swish") => Ok(()),
        Some(other) => Err(fields.wrong(
            "hidden_act",
            format!("\"{other}\" is not supported, only silu"),
        )),
    }
}

/// A window counts only where some layer uses it: published Qwen2 configs name one and switch it off.
fn refuse_sliding_windows(fields: &JsonFields, layers: usize) -> Result<(), ModelError> {
    let refuse =
        |field: &str| Err(fields.wrong(field, "sliding-window attention is not supported"));
    if let Some(Value::Array(types)) = fields.get("layer_types") {
        if let Some(odd) = types.iter().find(|t| t.as_str() != Some("full_attention")) {
            return Err(fields.wrong(
                "layer_types",
                format!("{odd} is not supported, only full_attention"),
            ));
        }
        return Ok(());
    }
    let first = match fields.get("max_window_layers") {
        Some(value) => value.as_u64().unwrap_or(0) as usize,
        None => 28,
    };
    // An absent window is one of 4096; null is none.
    let window = fields.has("sliding_window") || fields.is_absent("sliding_window");
    if fields.flag("use_sliding_window")? && window && first < layers {
        return refuse("use_sliding_window");
    }
    Ok(())
}
