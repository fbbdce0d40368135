//! Samples tokens from the output of a language model:
//!
//! ```text
//! token = argmax over v of z[v] - log(-log(u[v]))          z = logits / temperature
//! ```
//!
//! The argmax after adding Gumbel noise is an exact sample from softmax(z) (Gumbel 1954; Maddison, Tarlow and Minka 2014),
//! and it can be computed chunk by chunk. u[v] comes from Philox4x32-10 with the key of the draw and the token as its
//! counter, so a draw depends only on its key and its row, not on the batch, the order or the chunks.

use std::ops::Range;

use super::log_prob::{CUT, LmHead, Scoring, VocabularyCut, used_rows};
use crate::gpu::{Bind, GpuError, Groups, Kernel, params};
use crate::ops::threads_together;
use crate::{ALIGNMENT, Gpu, Indices, Tensor};

const DRAW: Kernel = Kernel::new("sample", "draw");
const CHOOSE: Kernel = Kernel::new("sample", "choose");

/// The result of [`Tensor::draw`], on the device and untracked.
#[derive(Debug)]
pub struct Draws {
    /// The tokens.
    pub tokens: Indices,
    /// Their log-probs, bit-identical to those of [`Tensor::log_probs`].
    pub log_probs: Tensor,
    /// The entropy of the distribution of each draw, in nats.
    pub entropy: Tensor,
    /// The memory of all three, each at a multiple of [`ALIGNMENT`], so that one read returns them.
    words: Indices,
}

/// A sampled token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// The token.
    pub token: u32,
    /// Its log-prob.
    pub log_prob: f32,
    /// The entropy of its distribution, in nats.
    pub entropy: f32,
}

impl Draws {
    fn empty(gpu: &Gpu, count: usize) -> Draws {
        let span = count.next_multiple_of(ALIGNMENT);
        let words = Indices::empty(gpu, 3 * span);
        Draws {
            tokens: words.window(0..count),
            log_probs: words.floats(span..span + count),
            entropy: words.floats(2 * span..2 * span + count),
            words,
        }
    }

    /// Waits for the draws and copies them to the host.
    ///
    /// # Errors
    /// An error of the device.
    pub fn read(&self) -> Result<Vec<Draw>, GpuError> {
        let words = self.words.to_vec()?;
        let parts = words.chunks_exact(words.len() / 3).collect::<Vec<_>>();
        let draw = |i: usize| Draw {
            token: parts[0][i],
            log_prob: f32::from_bits(parts[1][i]),
            entropy: f32::from_bits(parts[2][i]),
        };
        Ok((0..self.tokens.len()).map(draw).collect())
    }
}

impl Tensor {
    /// Samples a token for each entry of `rows` from softmax(logits / temperature) of that hidden row of self (R, C).
    /// The same key and row give the same token. Equal keys on different rows have the same noise, so each draw needs its
    /// own key.
    ///
    /// A temperature of 0 selects the most likely token, the lowest of equals. Log-probs and entropy are then those of
    /// temperature 1.
    ///
    /// # Panics
    /// If the shapes do not fit, there are no rows, a row does not exist, or the temperature is negative.
    #[track_caller]
    pub fn draw(
        &self,
        head: &LmHead,
        rows: &Indices,
        keys: &[[u32; 2]],
        temperature: f32,
    ) -> Draws {
        self.draw_cut(head, rows, keys, temperature, CUT)
    }

    #[track_caller]
    fn draw_cut(
        &self,
        head: &LmHead,
        rows: &Indices,
        keys: &[[u32; 2]],
        temperature: f32,
        cut: VocabularyCut,
    ) -> Draws {
        assert!(
            rows.len() == keys.len(),
            "draw: {} rows and {} keys",
            rows.len(),
            keys.len()
        );
        let noisy = temperature != 0.0;
        let scale = if noisy { temperature } else { 1.0 };
        let (hidden, rows) = used_rows("draw", self, rows);
        let scoring = Scoring::new("draw", &hidden, head, &rows, scale, cut);
        let gpu = self.gpu();
        let (draws, blocks) = (rows.len(), scoring.blocks());
        let keys = Indices::new(gpu, keys.as_flattened());
        let statistics = scoring.statistics();
        let drawn = Draws::empty(gpu, draws);
        let scores = Tensor::empty(gpu, &[draws, blocks]);
        // The best token of a single block is the draw.
        let (scaled, ids) = match blocks {
            1 => (drawn.log_probs.clone(), drawn.tokens.clone()),
            _ => (
                Tensor::empty(gpu, &[draws, blocks]),
                Indices::empty(gpu, draws * blocks),
            ),
        };
        let params = |chunk: &Range<usize>| {
            params! {
                draws: u32 = draws,
                first: u32 = chunk.start,
                length: u32 = chunk.len(),
                blocks: u32 = blocks,
                inverse_temperature: f32 = scale.recip(),
                noisy: u32 = noisy,
            }
        };
        for chunk in scoring.chunks() {
            let logits = scoring.logits(&chunk);
            scoring.summarise(&chunk, &logits, &statistics, &scaled, None);
            let buffers: [&dyn Bind; 6] = [&logits, &rows, &keys, &scores, &scaled, &ids];
            let groups = Groups::count(draws * chunk.len().div_ceil(cut.block));
            DRAW.launch(&scoring.constants(), &buffers, &params(&chunk), groups);
        }
        if blocks > 1 {
            let buffers: [&dyn Bind; 5] = [&scores, &scaled, &ids, &drawn.tokens, &drawn.log_probs];
            let groups = Groups::of(draws, threads_together(gpu));
            CHOOSE.launch(&scoring.constants(), &buffers, &params(&(0..0)), groups);
        }
        scoring.finish(&statistics, &drawn.log_probs, &drawn.entropy);
        drawn
    }
}

#[cfg(test)]
mod tests;
