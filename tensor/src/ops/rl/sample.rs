//! Draws tokens from a language model's output:
//!
//! ```text
//! token = argmax over v of z[v] - log(-log(u[v]))          z = logits / temperature
//! ```
//!
//! Adding Gumbel noise and taking the largest samples from softmax(z) exactly (Gumbel 1954; Maddison, Tarlow and Minka
//! 2014), and the largest can be found chunk by chunk. u[v] comes from Philox4x32-10 keyed by the draw, its counter
//! the token: a draw depends on its key and its row alone, not on the batch, the order or the chunks.

use super::log_prob::{CUT, Cut, LmHead, Scoring, asked_rows};
use crate::gpu::{Bind, GpuError, Groups, Kernel};
use crate::ops::threads_together;
use crate::{Gpu, Indices, Tensor};

const DRAW: Kernel = Kernel::new("sample", "draw");
const CHOOSE: Kernel = Kernel::new("sample", "choose");

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    draws: u32,
    first: u32,
    length: u32,
    blocks: u32,
    inverse_temperature: f32,
    noisy: u32,
}

/// What [`Tensor::draw`] gives, on the device. Nothing is tracked.
pub struct Draws {
    /// The tokens.
    pub tokens: Indices,
    /// Their log-probs: bit for bit what [`Tensor::log_probs`] gives for them.
    pub log_probs: Tensor,
    /// The entropy of the distribution that each was drawn from, in nats.
    pub entropy: Tensor,
    /// All three lie in here, one after the other, each from a multiple of `SPAN` on: to read them one by one would be
    /// to wait for the device three times a token.
    words: Indices,
}

/// A binding begins at a multiple of this many words, 256 bytes.
const SPAN: usize = 64;

/// One draw on the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// The token.
    pub token: u32,
    /// Its log-prob.
    pub log_prob: f32,
    /// The entropy of the distribution that it was drawn from, in nats.
    pub entropy: f32,
}

impl Draws {
    fn empty(gpu: &Gpu, count: usize) -> Draws {
        let span = count.next_multiple_of(SPAN);
        let words = Indices::empty(gpu, 3 * span);
        Draws {
            tokens: words.window(0..count),
            log_probs: words.floats(span..span + count),
            entropy: words.floats(2 * span..2 * span + count),
            words,
        }
    }

    /// Waits for all of them.
    ///
    /// # Errors
    /// What the device reported.
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
    /// Draws one token for each entry of `rows`, from softmax(logits / temperature) after that hidden row of these
    /// (R, C). `keys` decide the luck: the same key and row give the same token. Equal keys on different rows share
    /// their noise, so give each draw its own.
    ///
    /// A temperature of 0 takes the likeliest token, the lowest of equals; log-probs and entropy are then those of
    /// temperature 1.
    ///
    /// # Panics
    /// If the shapes do not fit, nothing is asked for, a row does not exist, or the temperature is negative.
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
        cut: Cut,
    ) -> Draws {
        assert!(
            rows.len() == keys.len(),
            "draw: {} rows and {} keys",
            rows.len(),
            keys.len()
        );
        let noisy = temperature != 0.0;
        let scale = if noisy { temperature } else { 1.0 };
        let (hidden, rows) = asked_rows("draw", self, rows);
        let scoring = Scoring::new("draw", &hidden, head, &rows, scale, cut);
        let gpu = self.gpu();
        let (draws, blocks) = (rows.len(), scoring.blocks());
        let keys = Indices::new(gpu, keys.as_flattened());
        let statistics = scoring.statistics();
        let drawn = Draws::empty(gpu, draws);
        let scores = Tensor::empty(gpu, &[draws, blocks]);
        // The best of a single block is the draw.
        let (scaled, ids) = match blocks {
            1 => (drawn.log_probs.clone(), drawn.tokens.clone()),
            _ => (
                Tensor::empty(gpu, &[draws, blocks]),
                Indices::empty(gpu, draws * blocks),
            ),
        };
        let mut params = Params {
            draws: draws as u32,
            first: 0,
            length: 0,
            blocks: blocks as u32,
            inverse_temperature: scale.recip(),
            noisy: u32::from(noisy),
        };
        for chunk in scoring.chunks() {
            let logits = scoring.logits(&chunk);
            scoring.summarise(&chunk, &logits, &statistics, &scaled, None);
            (params.first, params.length) = (chunk.start as u32, chunk.len() as u32);
            let buffers: [&dyn Bind; 6] = [&logits, &rows, &keys, &scores, &scaled, &ids];
            let groups = Groups::count(draws * chunk.len().div_ceil(cut.block));
            DRAW.launch(&scoring.constants(), &buffers, &params, groups);
        }
        if blocks > 1 {
            let buffers: [&dyn Bind; 5] = [&scores, &scaled, &ids, &drawn.tokens, &drawn.log_probs];
            let groups = Groups::of(draws, threads_together(gpu));
            CHOOSE.launch(&scoring.constants(), &buffers, &params, groups);
        }
        scoring.finish(&statistics, &drawn.log_probs, &drawn.entropy);
        drawn
    }
}

#[cfg(test)]
mod tests;
