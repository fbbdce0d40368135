//! The decoder, from token ids to hidden states, top to bottom.
//!
//! Letters for shapes:
//!
//! | letter | size |
//! |---|---|
//! | T | tokens of the packed tree, or of a decoding step |
//! | S | rows of the KV arena |
//! | C | width of the residual stream |
//! | H, K, D | query heads, key and value heads, numbers per head |
//! | F | width between gate and down |
//! | V | vocabulary |
//!
//! Training and sampling run the same blocks. They differ in the source of keys and values ([`Model::run`]), and in whether a
//! block computes its results, keeps them or knows them ([`Results`]).

use std::sync::Arc;

use lapwing_tensor::{
    Gpu, Indices, LinearLayer, Lora, Matrix, Rotations, Tensor, Unrotated, Visibility,
    known_output, recomputed, rl::LmHead,
};

use super::results::{KeptResults, Results};
use crate::{Adapter, Linear, LoadReport, ModelConfig, PackedTree, TokenTree};

/// A decoder language model on the device. Clones share the weights.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) config: ModelConfig,
    pub(crate) gpu: Gpu,
    pub(crate) embedding: Matrix, // (V, C)
    pub(crate) blocks: Vec<Block>,
    pub(crate) norm: Tensor, // (C)
    pub(crate) head: Matrix, // (V, C); the embedding itself where they are tied
    pub(crate) rotations: Rotations,
    pub(crate) report: LoadReport,
    pub(crate) recomputes: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) attention_norm: Tensor,               // (C)
    pub(crate) linears: [Affine; 7],                 // in the order of Linear::BLOCK
    pub(crate) head_norms: Option<(Tensor, Tensor)>, // (D) for queries, (D) for keys
    pub(crate) mlp_norm: Tensor,                     // (C)
}

/// y = x W^T + bias
#[derive(Clone, Debug)]
pub(crate) struct Affine {
    pub(crate) weight: Matrix,       // (N, K)
    pub(crate) bias: Option<Tensor>, // (N)
}

/// The tokens of one forward pass, on the device. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokens {
    ids: Indices,
    positions: Indices,
    visible: Visibility,
}

impl Tokens {
    /// Uploads a packed tree.
    pub fn new(gpu: &Gpu, packed: &PackedTree) -> Tokens {
        Tokens {
            ids: Indices::new(gpu, &packed.ids),
            positions: Indices::new(gpu, &packed.positions),
            visible: Visibility::tree(gpu, &packed.visible_until),
        }
    }

    /// Uploads one sequence.
    ///
    /// # Panics
    /// If it is empty.
    #[track_caller]
    pub fn sequence(gpu: &Gpu, ids: &[u32]) -> Tokens {
        assert!(!ids.is_empty(), "sequence: there are no tokens");
        let mut tree = TokenTree::default();
        tree.insert(ids);
        Tokens::new(gpu, &tree.pack())
    }
}

impl Model {
    /// Returns the hidden states of every token after the last norm: (T, C). Without an adapter this is the reference policy.
    ///
    /// # Panics
    /// If an id is not in the vocabulary.
    #[track_caller]
    pub fn forward(&self, tokens: &Tokens, adapter: Option<&Adapter>) -> Tensor {
        // Recomputed blocks outlive this call.
        let owned = Arc::new((self.clone(), tokens.clone(), adapter.cloned()));
        let mut x = Tensor::embedding(&self.embedding, &tokens.ids); // (T, C)
        for layer in 0..self.blocks.len() {
            let owned = owned.clone();
            let block = move |x: &Tensor| {
                let (model, tokens, adapter) = &*owned;
                model.train_block(layer, x, tokens, adapter.as_ref(), &Results::Computed)
            };
            // With recomputation only the input of each block is kept for the gradients.
            x = match self.recomputes {
                true => recomputed(&x, block),
                false => block(&x),
            };
        }
        x.rms_norm(&self.norm, self.config.eps) // (T, C)
    }

    /// Returns the same hidden states with the same gradients, given the results that sampling with this adapter kept of these
    /// tokens: only the gradients are left to compute.
    pub fn forward_known(
        &self,
        tokens: &Tokens,
        adapter: Option<&Adapter>,
        kept: &KeptResults,
    ) -> Tensor {
        let owned = Arc::new((self.clone(), tokens.clone(), adapter.cloned(), kept.clone()));
        let mut x = Tensor::embedding(&self.embedding, &tokens.ids); // (T, C)
        for layer in 0..self.blocks.len() {
            let output = kept.output(layer);
            if !x.is_tracked() && !self.is_tracked(layer, adapter) {
                x = output;
                continue;
            }
            let (owned, known) = (owned.clone(), output.clone());
            x = known_output(&x, &output, move |x| {
                let (model, tokens, adapter, kept) = &*owned;
                let results = Results::Known(kept, layer, &known);
                model.train_block(layer, x, tokens, adapter.as_ref(), &results)
            });
        }
        x.rms_norm(&self.norm, self.config.eps) // (T, C)
    }

    /// Returns whether a block has weights that get gradients.
    fn is_tracked(&self, layer: usize, adapter: Option<&Adapter>) -> bool {
        let loras = Linear::BLOCK.map(|linear| adapter.and_then(|of| of.get(layer, linear)));
        let mut loras = loras.into_iter().flatten();
        // Of a model that is trained, all weights are tracked.
        self.blocks[layer].mlp_norm.is_tracked() || loras.any(|lora| lora.a.is_tracked())
    }

    /// Runs one block over whole sequences.
    fn train_block(
        &self,
        layer: usize,
        x: &Tensor,
        tokens: &Tokens,
        adapter: Option<&Adapter>,
        results: &Results<'_>,
    ) -> Tensor {
        let heads = [self.config.heads, self.config.kv_heads];
        self.block(layer, x, adapter, results, &tokens.visible, |qkv| {
            qkv.rope(&tokens.positions, &self.rotations, heads)
        })
    }

    /// Returns the head for [`Tensor::log_probs`], [`Tensor::draw`] and [`Tensor::logits`].
    pub fn head(&self, adapter: Option<&Adapter>) -> LmHead {
        let lora = adapter.and_then(|adapter| adapter.get(0, Linear::Head));
        LmHead {
            weight: self.head.clone(),
            lora: lora.cloned(),
        }
    }

    /// Runs all blocks for sampling. `place` receives the index of a block and the queries (T, H*D), keys and values (T, K*D)
    /// of the new tokens, and returns the rotated queries and the keys and values to see. `results` receives the index of a
    /// block.
    pub(crate) fn run<'a>(
        &self,
        ids: &Indices,
        adapter: Option<&Adapter>,
        results: impl Fn(usize) -> Results<'a>,
        visible: &Visibility,
        place: impl Fn(usize, Unrotated) -> [Tensor; 3],
    ) -> Tensor {
        let mut x = Tensor::embedding(&self.embedding, ids); // (T, C)
        for layer in 0..self.blocks.len() {
            let place = |qkv| place(layer, qkv);
            x = self.block(layer, &x, adapter, &results(layer), visible, place);
        }
        x.rms_norm(&self.norm, self.config.eps) // (T, C)
    }

    /// Runs one block: attention, then the MLP.
    fn block(
        &self,
        layer: usize,
        x: &Tensor,
        adapter: Option<&Adapter>,
        results: &Results<'_>,
        visible: &Visibility,
        place: impl FnOnce(Unrotated) -> [Tensor; 3],
    ) -> Tensor {
        let block = &self.blocks[layer];
        let layer = |linear| {
            let lora = adapter.and_then(|adapter| adapter.get(layer, linear));
            block.layer(linear, lora)
        };
        let x = self.attention(block, x, layer, results, visible, place);
        self.mlp(block, &x, layer, results)
    }

    /// x + o(attention(q(h), k(h), v(h))) with h = norm(x)
    fn attention<'a>(
        &self,
        block: &Block,
        x: &Tensor,
        layer: impl Fn(Linear) -> LinearLayer<'a>,
        results: &Results<'_>,
        visible: &Visibility,
        place: impl FnOnce(Unrotated) -> [Tensor; 3],
    ) -> Tensor {
        let h = x.rms_norm(&block.attention_norm, self.config.eps); // (T, C)
        // (T, H*D), (T, K*D), (T, K*D)
        let [mut q, mut k, v] = results.linears(&h, [Linear::Q, Linear::K, Linear::V], &layer);
        if let Some((query_norm, key_norm)) = &block.head_norms {
            q = norm_heads(&q, query_norm, self.config.eps);
            k = norm_heads(&k, key_norm, self.config.eps);
        }
        let [q, k, v] = place(Unrotated { q, k, v });
        let heads = [self.config.heads, self.config.kv_heads];
        let seen = results.attention([&q, &k, &v], visible, heads); // (T, H*D)
        results.add_linear(x, &seen, Linear::O, layer) // (T, C)
    }

    /// x + down(silu(gate(h)) * up(h)) with h = norm(x)
    fn mlp<'a>(
        &self,
        block: &Block,
        x: &Tensor,
        layer: impl Fn(Linear) -> LinearLayer<'a>,
        results: &Results<'_>,
    ) -> Tensor {
        let h = x.rms_norm(&block.mlp_norm, self.config.eps); // (T, C)
        let gated = results.gated(&h, &layer); // (T, F)
        results.add_linear(x, &gated, Linear::Down, layer) // (T, C)
    }

    /// Returns the configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns the device that holds the model.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Returns the summary of loading.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// Sets whether [`Model::forward`] computes each block again in the backward pass instead of keeping its intermediate
    /// values (Chen et al. 2016). This takes less memory and a third more work; the result is bit-identical.
    pub fn with_recomputation(mut self, on: bool) -> Model {
        self.recomputes = on;
        self
    }

    /// Returns a view of the same weights without gradients, for sampling and scoring. It follows later updates.
    pub fn without_gradients(&self) -> Model {
        let affine = |a: &Affine| Affine {
            weight: a.weight.detach(),
            bias: a.bias.as_ref().map(Tensor::detach),
        };
        let block = |b: &Block| Block {
            attention_norm: b.attention_norm.detach(),
            linears: b.linears.each_ref().map(affine),
            head_norms: b.head_norms.as_ref().map(|(q, k)| (q.detach(), k.detach())),
            mlp_norm: b.mlp_norm.detach(),
        };
        Model {
            embedding: self.embedding.detach(),
            blocks: self.blocks.iter().map(block).collect(),
            norm: self.norm.detach(),
            head: self.head.detach(),
            ..self.clone()
        }
    }
}

impl Block {
    fn layer<'a>(&'a self, linear: Linear, lora: Option<&'a Lora>) -> LinearLayer<'a> {
        let Affine { weight, bias } = &self.linears[linear as usize];
        let bias = bias.as_ref();
        LinearLayer {
            weight,
            bias,
            lora,
            residual: None,
        }
    }
}

/// Normalises each head of (T, heads*D).
fn norm_heads(x: &Tensor, weight: &Tensor, eps: f32) -> Tensor {
    let (rows, cols, size) = (x.rows(), x.cols(), weight.len());
    x.reshape(&[rows * cols / size, size])
        .rms_norm(weight, eps)
        .reshape(&[rows, cols])
}
