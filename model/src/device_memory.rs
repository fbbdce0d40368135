//! Formulas for the device memory that a model's work takes: the tape, and the largest set of other live tensors. The test
//! `model/tests/device_memory.rs` compares them with the memory in use.
//!
//! With the letters of `transformer.rs`, a block keeps these numbers for each token:
//!
//! ```text
//! attention   x C, norm C, q H*D, k K*D, v K*D, seen H*D          (with head norms q and k twice)
//! mlp         x C, norm C, gate F, up F, gate * up F
//! adapter     r for each adapted layer
//! ```
//!
//! They leave out what a product on a processor copies while it runs: at most F numbers for each token of a pass.

use crate::{Linear, ModelConfig};

/// Bytes of a number on the device.
const NUMBER: u64 = 4;
/// Buffer sizes are eighths of a power of two, a sixteenth too large on average.
const ROUNDING: (u64, u64) = (17, 16);
/// Bytes of logits in flight (`tensor/src/ops/rl/log_prob/scoring.rs`).
const LOGITS: u64 = 16 << 20;
/// Tokens in a block of logits.
const LOGITS_OF_A_ROW: u64 = 2048;

impl ModelConfig {
    /// Returns the bytes of one token of a [`KvArena`](crate::KvArena): keys, values and final hidden state.
    pub fn arena_row_bytes(&self) -> u64 {
        let kv_width = self.kv_heads * self.head_size;
        NUMBER * (2 * self.layers * kv_width + self.width) as u64
    }

    /// Returns the bytes of a forward pass over `tokens` without gradients, or of sampling after `rows`, whichever is larger.
    pub fn forward_bytes(&self, tokens: usize, rows: usize) -> u64 {
        let [c, q, k, f] = self.widths();
        // Input, norm and result; q, k and v, the output of attention, and about another q for the adapter and rounding.
        let attention = 3 * c + 3 * q + 2 * k;
        // Gate and up are no tensors: one launch computes their product.
        let mlp = 4 * c + f;
        rounded(NUMBER * tokens as u64 * attention.max(mlp)).max(self.head_bytes(rows))
    }

    /// Returns the bytes of a forward and backward pass over `tokens` with a log-prob of every token, without weights and
    /// adapter. `rank` is the adapter's.
    pub fn update_bytes(&self, tokens: usize, rank: usize, recomputes: bool) -> u64 {
        let (layers, block) = (self.layers as u64, self.update_block(rank));
        let alive = self.backward_alive();
        // Kept throughout, and only for the backward pass of one block. The head's backward pass comes before all blocks.
        let (kept, block) = match recomputes {
            true => (layers * self.width as u64, block + alive),
            false => (layers * block, alive),
        };
        let bytes = |numbers: u64| rounded(NUMBER * tokens as u64 * numbers);
        bytes(kept) + bytes(block).max(self.head_bytes(tokens))
    }

    /// Returns the bytes of the results that an arena keeps of `tokens`, and of the backward pass that reads them.
    pub fn known_update_bytes(&self, tokens: usize, rank: usize) -> u64 {
        let [c, q, k, f] = self.widths();
        // Of each block: q, k, v, gate, up, the outputs of both halves and what the attention computes. Then each block's
        // output once more, in the order of the update; the other results are read block by block.
        let kept = 2 * q + 2 * k + 2 * f + 2 * c + self.heads as u64;
        let bytes = |numbers: u64| rounded(NUMBER * tokens as u64 * numbers);
        let block = self.update_block(rank) + self.backward_alive();
        bytes(self.layers as u64 * (kept + c)) + bytes(block).max(self.head_bytes(tokens))
    }

    /// Returns the numbers that a block keeps for each token.
    fn update_block(&self, rank: usize) -> u64 {
        let [c, q, k, f] = self.widths();
        let norms = if self.qk_norm() { q + k } else { 0 };
        4 * c + 2 * q + 2 * k + norms + 3 * f + 7 * rank as u64
    }

    /// Returns the other numbers of each token that the backward pass of a block needs: the gradients of gate, up and their
    /// product, and of input and output. (The kept product is freed by then; a low-rank term may be a tensor of its own.)
    fn backward_alive(&self) -> u64 {
        let [c, _, _, f] = self.widths();
        3 * f + 3 * c
    }

    /// Returns the bytes of the log-probs of `rows` and their gradient.
    fn head_bytes(&self, rows: usize) -> u64 {
        let (rows, c, vocab) = (rows as u64, self.width as u64, self.vocab as u64);
        // As many whole blocks of the vocabulary as fit, at least one.
        let block = (NUMBER * rows * LOGITS_OF_A_ROW).max(1);
        let at_once = (block * (LOGITS / block).max(1)).min(NUMBER * rows * vocab);
        let statistics = NUMBER * rows * 4 * vocab.div_ceil(LOGITS_OF_A_ROW);
        rounded(NUMBER * rows * 4 * c + at_once + statistics)
    }

    /// Returns the most tokens of one forward pass on a device whose kernels bind at most `max_binding` bytes of a buffer. `rank`
    /// is the adapter's.
    pub fn most_tokens(&self, max_binding: u64, rank: usize) -> usize {
        let [c, q, k, f] = self.widths();
        let logits = (self.vocab as u64).min(LOGITS_OF_A_ROW);
        // The gradients of keys and values lie in one buffer, in up to two parts.
        let widest = c.max(q).max(4 * k).max(f).max(logits).max(rank as u64);
        (max_binding / NUMBER / widest) as usize
    }

    /// Returns the most tokens of a [`KvArena`](crate::KvArena) on such a device.
    pub fn most_arena_rows(&self, max_binding: u64) -> usize {
        let [c, _, k, _] = self.widths();
        ((max_binding / NUMBER / c.max(k)) as usize).min(u32::MAX as usize)
    }

    /// Returns C, H*D, K*D and F.
    fn widths(&self) -> [u64; 4] {
        let outputs = |linear| self.linear_shape(linear).0 as u64;
        [Linear::O, Linear::Q, Linear::K, Linear::Gate].map(outputs)
    }
}

fn rounded(bytes: u64) -> u64 {
    bytes * ROUNDING.0 / ROUNDING.1
}
