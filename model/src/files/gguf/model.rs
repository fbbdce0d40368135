//! The config of a GGUF model, and the Hugging Face names of its tensors.

use serde_json::Value;

use super::{Gguf, GgufFields, GgufValue};
use crate::files::config_json::{
    MOST_LAYERS, MOST_POSITIONS, MOST_TOKENS, MOST_WIDTH, check_head_size,
};
use crate::{ModelConfig, ModelError, ModelFamily, Rope, RopeScaling};

/// The tensor with the divisors of the frequencies of Llama 3.1.
const DIVISORS: &str = "rope_freqs.weight";

/// Reads the metadata of a model.
pub(crate) fn read_config(gguf: &Gguf) -> Result<ModelConfig, ModelError> {
    let fields = gguf.fields();
    let name = fields.text("general.architecture")?.unwrap_or_default();
    let Some(family) = ModelFamily::named(name) else {
        let problem = format!("{name:?} is not supported; supported are llama, qwen2 and qwen3");
        return Err(fields.wrong("general.architecture", problem));
    };
    let key = |field: &str| format!("{name}.{field}");
    let number = |field: &str| fields.get(field).and_then(Value::as_u64).unwrap_or(0);
    if number("split.count") > 1 {
        let problem = "one of several parts; join them with `llama-gguf-split --merge`";
        return Err(fields.wrong("split.count", problem));
    }
    for (field, what) in [
        ("expert_count", "mixtures of experts are"),
        ("attention.sliding_window", "sliding-window attention is"),
    ] {
        if number(&key(field)) > 0 {
            return Err(fields.wrong(&key(field), format!("{what} not supported")));
        }
    }
    let width = fields.required_count(&key("embedding_length"), MOST_WIDTH)?;
    let heads = fields.required_count(&key("attention.head_count"), MOST_WIDTH)?;
    let kv_heads = fields.count(&key("attention.head_count_kv"), MOST_WIDTH)?;
    let kv_heads = kv_heads.unwrap_or(heads);
    if heads % kv_heads != 0 {
        let problem = format!("{kv_heads} does not divide the {heads} heads");
        return Err(fields.wrong(&key("attention.head_count_kv"), problem));
    }
    let head_size = fields.count(&key("attention.key_length"), 1024)?;
    let head_size = head_size.unwrap_or(width / heads);
    check_head_size(head_size, heads).map_err(|e| fields.wrong(&key("attention.key_length"), e))?;
    for field in ["attention.value_length", "rope.dimension_count"] {
        let found = fields.count(&key(field), 1024)?.unwrap_or(head_size);
        if found != head_size {
            let problem = format!("{found} differs from the {head_size} numbers of a head");
            return Err(fields.wrong(&key(field), problem));
        }
    }
    let has = |tensor: &str| gguf.header.tensors.contains_key(tensor);
    let table = gguf.header.tensors.get("token_embd.weight");
    let vocab = table.and_then(|table| table.shape.first()).copied();
    let vocab = vocab.filter(|rows| (1..=MOST_TOKENS).contains(rows));
    let vocab = vocab.ok_or_else(|| {
        let problem = format!("missing, or not a matrix of 1 to {MOST_TOKENS} rows");
        ModelError::tensor(&gguf.path, "token_embd.weight", problem)
    })?;
    let mut eos = Vec::new();
    for field in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        eos.extend(fields.token_ids(&format!("tokenizer.ggml.{field}"))?);
    }
    eos.sort_unstable();
    eos.dedup();
    Ok(ModelConfig {
        family,
        vocab,
        width,
        layers: fields.required_count(&key("block_count"), MOST_LAYERS)?,
        heads,
        kv_heads,
        head_size,
        mlp_width: fields.required_count(&key("feed_forward_length"), MOST_WIDTH * 8)?,
        eps: fields.required_positive(&key("attention.layer_norm_rms_epsilon"))? as f32,
        rope: read_rope(gguf, name, head_size)?,
        tied: !has("output.weight"),
        qkv_bias: has("blk.0.attn_q.bias"),
        o_bias: has("blk.0.attn_output.bias"),
        mlp_bias: has("blk.0.ffn_gate.bias"),
        max_positions: fields.required_count(&key("context_length"), MOST_POSITIONS)?,
        eos,
    })
}

/// Returns the metadata of a model without its tokenizer: what [`read_config`] reads and what llama.cpp needs.
pub(crate) fn fields_of(config: &ModelConfig) -> GgufFields {
    let name = config.family.model_type();
    let mut fields = vec![
        ("general.type".to_owned(), GgufValue::text("model")),
        ("general.architecture".to_owned(), GgufValue::text(name)),
    ];
    let mut set = |field: &str, value| fields.push((format!("{name}.{field}"), value));
    for (field, number) in [
        ("vocab_size", config.vocab),
        ("context_length", config.max_positions),
        ("embedding_length", config.width),
        ("block_count", config.layers),
        ("feed_forward_length", config.mlp_width),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
        ("attention.key_length", config.head_size),
        ("attention.value_length", config.head_size),
        ("rope.dimension_count", config.head_size),
    ] {
        set(field, GgufValue::count(number));
    }
    set(
        "attention.layer_norm_rms_epsilon",
        GgufValue::float(config.eps),
    );
    set("rope.freq_base", GgufValue::float(config.rope.theta as f32));
    if let RopeScaling::Linear { factor } = config.rope.scaling {
        set("rope.scaling.type", GgufValue::text("linear"));
        set("rope.scaling.factor", GgufValue::float(factor as f32));
    }
    fields
}

/// Returns name and values of the tensor with the divisors of the frequencies, if the model scales them as Llama 3.1 does.
pub(crate) fn frequency_divisors(config: &ModelConfig) -> Option<(&'static str, Vec<f32>)> {
    let RopeScaling::Llama3 { .. } = config.rope.scaling else {
        return None;
    };
    let plain = Rope {
        scaling: RopeScaling::None,
        ..config.rope.clone()
    };
    let [plain, scaled] =
        [&plain, &config.rope].map(|rope| rope.inverse_frequencies(config.head_size));
    let divisors = plain
        .iter()
        .zip(&scaled)
        .map(|(plain, scaled)| plain / scaled);
    Some((DIVISORS, divisors.collect()))
}

/// Reads the rotary position embedding. The scaling of Llama 3.1 is stored as divisors of the frequencies.
fn read_rope(gguf: &Gguf, architecture: &str, head_size: usize) -> Result<Rope, ModelError> {
    let fields = gguf.fields();
    let key = |field: &str| format!("{architecture}.rope.{field}");
    let theta = fields.positive(&key("freq_base"))?.unwrap_or(10_000.0);
    let mut rope = Rope {
        theta,
        scaling: RopeScaling::None,
    };
    match fields.text(&key("scaling.type"))? {
        None | Some("none") => (),
        Some("linear") => {
            let factor = fields.required_positive(&key("scaling.factor"))?;
            rope.scaling = RopeScaling::Linear { factor };
        }
        Some(other) => {
            let problem = format!("{other:?} is not supported; supported are none and linear");
            return Err(fields.wrong(&key("scaling.type"), problem));
        }
    }
    if let Some(tensor) = gguf.header.tensors.get(DIVISORS) {
        let wrong = |problem: &str| ModelError::tensor(&gguf.path, DIVISORS, problem);
        if tensor.shape != [head_size / 2] {
            return Err(wrong("not one number for each pair of a head"));
        }
        let divisors = tensor.format.to_f32(&gguf.map[tensor.bytes.clone()]);
        let plain = rope.inverse_frequencies(head_size);
        // The published models differ in the largest divisor only.
        rope.scaling = RopeScaling::Llama3 {
            factor: divisors.iter().fold(1.0, |most, x| most.max(f64::from(*x))),
            low: 1.0,
            high: 4.0,
            original_positions: 8192.0,
        };
        let scaled = rope.inverse_frequencies(head_size);
        let mut pairs = plain.iter().zip(&scaled).zip(&divisors);
        if !pairs
            .all(|((plain, scaled), divisor)| (plain / scaled - divisor).abs() < 1e-3 * divisor)
        {
            return Err(wrong(
                "other divisors than those of Llama 3.1 to 3.3 are not supported",
            ));
        }
    }
    Ok(rope)
}

/// Returns the name of a tensor in a GGUF file.
pub(crate) fn tensor_name(hugging_face: &str) -> String {
    const PARTS: [(&str, &str); 13] = [
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
    ];
    let (module, kind) = hugging_face.rsplit_once('.').expect("a weight or a bias");
    let block = module
        .strip_prefix("model.layers.")
        .and_then(|rest| rest.split_once('.'));
    let part = block.map_or(module, |(_, part)| part);
    let part = PARTS.iter().find(|(name, _)| *name == part);
    // The head is the only other tensor.
    let part = part.map_or("output", |(_, part)| part);
    match block {
        Some((layer, _)) => format!("blk.{layer}.{part}.{kind}"),
        None => format!("{part}.{kind}"),
    }
}

/// Returns the numbers of a head if the rows of a tensor are permuted: llama.cpp stores the two numbers of a rotation next to
/// each other in models of the Llama family, Hugging Face in the two halves of a head.
pub(crate) fn head_permutation(config: &ModelConfig, hugging_face: &str) -> Option<usize> {
    let is_rotated = ["q_proj", "k_proj"]
        .iter()
        .any(|part| hugging_face.contains(part));
    (is_rotated && config.family == ModelFamily::Llama).then_some(config.head_size)
}

/// Returns rows in the order of llama.cpp, for the heads that [`head_permutation`] names: as its converter, which reshapes to
/// (heads, 2, size / 2, columns) and swaps the second axis and the third.
pub(crate) fn interleaved(values: &[f32], head: usize, cols: usize) -> Vec<f32> {
    let mut rows = Vec::with_capacity(values.len());
    for head in values.chunks_exact(head * cols) {
        let (first, second) = head.split_at(head.len() / 2);
        for (a, b) in first.chunks_exact(cols).zip(second.chunks_exact(cols)) {
            rows.extend(a);
            rows.extend(b);
        }
    }
    rows
}
