//! The configuration of a decoder. The differences between the supported families are data here; they share one transformer.

use crate::{Linear, Rope, RopeScaling};

/// A published architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFamily {
    /// Qwen2 and Qwen2.5, with biases on q, k and v.
    Qwen2,
    /// Qwen3, with q and k normalised per head.
    Qwen3,
    /// Llama 2 and 3, SmolLM2.
    Llama,
}

/// The configuration of a decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Architecture.
    pub family: ModelFamily,
    /// Tokens in the vocabulary (V).
    pub vocab: usize,
    /// Width of the residual stream (C).
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Query heads (H).
    pub heads: usize,
    /// Key and value heads (K); divides `heads`.
    pub kv_heads: usize,
    /// Numbers per head (D), a multiple of 4.
    pub head_size: usize,
    /// Width between gate and down (F).
    pub mlp_width: usize,
    /// Epsilon of RMSNorm.
    pub(crate) eps: f32,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Whether the head is the embedding table.
    pub tied: bool,
    /// Whether q, k and v have biases.
    pub(crate) qkv_bias: bool,
    /// Whether the attention output has a bias.
    pub(crate) o_bias: bool,
    /// Whether gate, up and down have biases.
    pub(crate) mlp_bias: bool,
    /// Longest sequence that the model was trained for.
    pub max_positions: usize,
    /// Ids that end a reply, from `config.json` and `generation_config.json`, sorted.
    pub eos: Vec<u32>,
}

/// The sizes of a new decoder; see [`ModelConfig::qwen2`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream; a multiple of four times `heads`.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width between gate and down.
    pub mlp_width: usize,
}

// The names of the two tables (V, C) in a checkpoint; a tied head is the embedding.
pub(crate) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(crate) const HEAD: &str = "lm_head.weight";

impl ModelConfig {
    /// Returns the configuration of a new Qwen2 decoder with a tied head, for pretraining.
    pub fn qwen2(shape: ModelShape) -> ModelConfig {
        ModelConfig {
            family: ModelFamily::Qwen2,
            vocab: shape.vocab,
            width: shape.width,
            layers: shape.layers,
            heads: shape.heads,
            kv_heads: shape.kv_heads,
            head_size: shape.width / shape.heads,
            mlp_width: shape.mlp_width,
            eps: 1e-6,
            rope: Rope {
                theta: 10_000.0,
                scaling: RopeScaling::None,
            },
            tied: true,
            qkv_bias: true,
            o_bias: false,
            mlp_bias: false,
            max_positions: 2048,
            eos: Vec::new(),
        }
    }

    /// Returns whether q and k are normalised per head.
    pub(crate) fn qk_norm(&self) -> bool {
        self.family == ModelFamily::Qwen3
    }

    /// Returns the shape (N, K) of a linear layer's weight: N outputs, K inputs.
    pub(crate) fn linear_shape(&self, linear: Linear) -> (usize, usize) {
        let (queries, keys) = (self.heads * self.head_size, self.kv_heads * self.head_size);
        match linear {
            Linear::Q => (queries, self.width),
            Linear::K | Linear::V => (keys, self.width),
            Linear::O => (self.width, queries),
            Linear::Gate | Linear::Up => (self.mlp_width, self.width),
            Linear::Down => (self.width, self.mlp_width),
            Linear::Head => (self.vocab, self.width),
        }
    }

    /// Returns whether a linear layer has a bias.
    pub(crate) fn has_bias(&self, linear: Linear) -> bool {
        match linear {
            Linear::Q | Linear::K | Linear::V => self.qkv_bias,
            Linear::O => self.o_bias,
            Linear::Gate | Linear::Up | Linear::Down => self.mlp_bias,
            Linear::Head => false,
        }
    }

    /// Returns the number of all values in [`ModelConfig::tensors`].
    pub fn numbers(&self) -> u64 {
        let size = |(_, shape): &(String, Vec<usize>)| shape.iter().product::<usize>() as u64;
        self.tensors().iter().map(size).sum()
    }

    /// Returns the name, in Hugging Face's spelling, and the shape of every tensor of a checkpoint.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let table = vec![self.vocab, self.width];
        let mut list = vec![(EMBEDDING.to_owned(), table.clone())];
        for layer in 0..self.layers {
            let block = |name: &str| format!("model.layers.{layer}.{name}.weight");
            list.push((block("input_layernorm"), vec![self.width]));
            for linear in Linear::BLOCK {
                let (n, k) = self.linear_shape(linear);
                list.push((format!("{}.weight", linear.module(layer)), vec![n, k]));
                if self.has_bias(linear) {
                    list.push((format!("{}.bias", linear.module(layer)), vec![n]));
                }
            }
            if self.qk_norm() {
                list.push((block("self_attn.q_norm"), vec![self.head_size]));
                list.push((block("self_attn.k_norm"), vec![self.head_size]));
            }
            list.push((block("post_attention_layernorm"), vec![self.width]));
        }
        list.push(("model.norm.weight".to_owned(), vec![self.width]));
        if !self.tied {
            list.push((HEAD.to_owned(), table));
        }
        list
    }
}
