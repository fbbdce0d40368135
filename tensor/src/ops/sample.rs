//! Draws tokens from a language model's output:
//!
//! ```text
//! token = argmax over v of z[v] - log(-log(u[v]))          z = logits / temperature
//! ```
//!
//! Adding Gumbel noise and taking the largest samples from softmax(z) exactly (Gumbel 1954; Maddison, Tarlow and Minka
//! 2014), and the largest can be found chunk by chunk. u[v] comes from Philox4x32-10 keyed by the draw, its counter
//! the token: a draw depends on its key and its row alone, not on the batch, the order or the chunks.

use super::log_prob::{CUT, Cut, Head, Scoring, asked_rows};
use super::threads_together;
use crate::gpu::{Groups, Kernel};
use crate::{Indices, Tensor};

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

/// What [`Tensor::draw`] gives for each draw. Nothing is tracked.
pub struct Draws {
    /// The tokens, on the device.
    pub tokens: Indices,
    /// Their log-probs: bit for bit what [`Tensor::log_probs`] gives for them.
    pub log_probs: Tensor,
    /// The entropy of the distribution that each was drawn from, in nats.
    pub entropy: Tensor,
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
    pub fn draw(&self, head: &Head, rows: &Indices, keys: &[[u32; 2]], temperature: f32) -> Draws {
        self.draw_cut(head, rows, keys, temperature, CUT)
    }

    /// The tokens of [`Tensor::draw`].
    ///
    /// # Panics
    /// As [`Tensor::draw`].
    #[track_caller]
    pub fn sample(
        &self,
        head: &Head,
        rows: &Indices,
        keys: &[[u32; 2]],
        temperature: f32,
    ) -> Indices {
        self.draw(head, rows, keys, temperature).tokens
    }

    #[track_caller]
    fn draw_cut(
        &self,
        head: &Head,
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
        let scores = Tensor::empty(gpu, &[draws, blocks]);
        let scaled = Tensor::empty(gpu, &[draws, blocks]);
        let ids = Indices::empty(gpu, draws * blocks);
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
            let bindings = [
                &logits.binding(),
                &rows.binding(),
                &keys.binding(),
                &scores.binding(),
                &scaled.binding(),
                &ids.binding(),
            ];
            let groups = Groups::count(draws * chunk.len().div_ceil(cut.block));
            DRAW.launch(gpu, &scoring.constants(), &bindings, &params, groups);
        }
        let (tokens, log_probs) = if blocks == 1 {
            (ids, scaled.reshape(&[draws]))
        } else {
            let (tokens, picked) = (Indices::empty(gpu, draws), Tensor::empty(gpu, &[draws]));
            let bindings = [
                &scores.binding(),
                &scaled.binding(),
                &ids.binding(),
                &tokens.binding(),
                &picked.binding(),
            ];
            CHOOSE.launch(
                gpu,
                &scoring.constants(),
                &bindings,
                &params,
                Groups::of(draws, threads_together(gpu)),
            );
            (tokens, picked)
        };
        let (entropy, _) = scoring.finish(&statistics, &log_probs);
        Draws {
            tokens,
            log_probs,
            entropy,
        }
    }
}

#[cfg(test)]
mod tests;
