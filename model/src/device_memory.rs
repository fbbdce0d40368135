//! How much device memory the work of a model takes, by its shape: what lies on the tape, and what is alive beside it at
//! the worst moment. `model/tests/memory.rs` holds these formulas to what is really in use.
//!
//! The letters are those of `transformer.rs`; a block keeps, for each token, in numbers:
//!
//! ```text
//! attention   x C, norm C, q H*D, k K*D, v K*D, seen H*D          (with head norms q and k twice)
//! mlp         x C, norm C, gate F, up F, gate * up F
//! adapter     r for each adapted layer
//! ```

use crate::{Linear, ModelConfig};

/// Bytes of a number on the device.
const NUMBER: u64 = 4;
/// Buffers come in sizes of eighths of a power of two, a sixteenth too large in the mean.
const ROUNDING: (u64, u64) = (17, 16);
/// The logits of so many bytes go by at a time (`tensor/src/ops/log_prob.rs`).
const LOGITS: u64 = 16 << 20;
/// ... in blocks of so many tokens.
const LOGITS_OF_A_ROW: u64 = 2048;

impl ModelConfig {
    /// Keys, values and final hidden state of one token of an [`KvArena`](crate::KvArena).
    pub fn arena_row_bytes(&self) -> u64 {
        let kv_width = self.kv_heads * self.head_size;
        NUMBER * (2 * self.layers * kv_width + self.width) as u64
    }

    /// What a forward pass over so many tokens takes when nothing is learned from it, or else drawing after so many rows.
    pub fn forward_bytes(&self, tokens: usize, rows: usize) -> u64 {
        let Widths { c, q, k, f } = self.widths();
        let attention = 3 * c + 3 * q + 4 * k;
        // Where a low-rank term does not fit into the launch, its sum stands by itself for a moment: F once more.
        let mlp = 4 * c + 4 * f;
        rounded(NUMBER * tokens as u64 * attention.max(mlp)).max(self.head_bytes(rows))
    }

    /// What forward and backward pass over so many tokens take beside weights and adapter, if a log-prob is asked of
    /// every token. `rank` is the adapter's.
    pub fn update_bytes(&self, tokens: usize, rank: usize, recomputes: bool) -> u64 {
        let Widths { c, q, k, f } = self.widths();
        let (layers, rank) = (self.layers as u64, rank as u64);
        let norms = if self.qk_norm() { q + k } else { 0 };
        let block = 4 * c + 2 * q + 2 * k + norms + 3 * f + 7 * rank;
        // While the MLP is differentiated: the gradients of gate, up and their product, and of what goes in and out. (Of
        // what is kept, the product has gone by then; a low-rank term may stand by itself.)
        let alive = 3 * f + 4 * c;
        // What is kept throughout, and what only while one block is differentiated. The head comes before all blocks.
        let (kept, block) = match recomputes {
            true => (layers * c, block + alive),
            false => (layers * block, alive),
        };
        let bytes = |numbers: u64| rounded(NUMBER * tokens as u64 * numbers);
        bytes(kept) + bytes(block).max(self.head_bytes(tokens))
    }

    /// Log-probs of every one of so many rows, and the gradient of the rows.
    fn head_bytes(&self, rows: usize) -> u64 {
        let (rows, c, vocab) = (rows as u64, self.width as u64, self.vocab as u64);
        // As many whole blocks of the vocabulary as the budget holds, at least one.
        let block = (NUMBER * rows * LOGITS_OF_A_ROW).max(1);
        let at_once = (block * (LOGITS / block).max(1)).min(NUMBER * rows * vocab);
        let statistics = NUMBER * rows * 4 * vocab.div_ceil(LOGITS_OF_A_ROW);
        rounded(NUMBER * rows * 4 * c + at_once + statistics)
    }

    /// The most tokens that can go through at once where a kernel sees at most so many bytes of a buffer. `rank` is the
    /// adapter's.
    pub fn most_tokens(&self, max_binding: u64, rank: usize) -> usize {
        let Widths { c, q, k, f } = self.widths();
        let logits = (self.vocab as u64).min(LOGITS_OF_A_ROW);
        let widest = c.max(q).max(k).max(f).max(logits).max(rank as u64);
        (max_binding / NUMBER / widest) as usize
    }

    /// The most tokens that an [`KvArena`](crate::KvArena) can hold there.
    pub fn most_arena_rows(&self, max_binding: u64) -> usize {
        let Widths { c, k, .. } = self.widths();
        ((max_binding / NUMBER / c.max(k)) as usize).min(u32::MAX as usize)
    }

    fn widths(&self) -> Widths {
        Widths {
            c: self.width as u64,
            q: self.linear_shape(Linear::Q).0 as u64,
            k: self.linear_shape(Linear::K).0 as u64,
            f: self.mlp_width as u64,
        }
    }
}

struct Widths {
    c: u64,
    q: u64,
    k: u64,
    f: u64,
}

fn rounded(bytes: u64) -> u64 {
    bytes * ROUNDING.0 / ROUNDING.1
}
