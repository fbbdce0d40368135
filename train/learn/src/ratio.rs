//! Ratios of whole turns and whole episodes, in place of those of single tokens (GSPO, arXiv 2507.18071).
//!
//! A turn of n tokens has one ratio, and so has an episode:
//!
//! ```text
//! s = exp(mean over its tokens of l - l_old)
//! ```
//!
//! Each of its tokens adds min(s A, clip(s) A) to what is maximised, with the slope s A in its log-prob, or 0 where it is
//! clipped (GSPO-token with one advantage for all). Since s is known on the host before the loss is, tokens get s A, or 0,
//! as their advantage and their present log-prob as the old one: the loss of [`ms_grpo`](crate::ms_grpo) then has
//! that slope.
//!
//! As a mean over tokens moves less than a token, the ranges are narrower: a range made for tokens would never clip.

use std::collections::HashMap;

use lapwing_model::Adapter;
use lapwing_tensor::GpuError;

use crate::batch::Batch;
use crate::config::{Ratio, Train};
use lapwing_play::players::model::Policy;

/// How ratios are taken in an update.
#[derive(Debug)]
pub struct Ratios {
    level: Ratio,
    clip: [f64; 2],
    /// of each chosen episode, where they are taken of episodes
    episodes: HashMap<usize, Mean>,
}

/// What clipping took away: the host's part, where ratios are not those of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Clipped {
    /// the loss of the tokens that teach nothing
    pub loss: f64,
    /// their share
    pub fraction: f64,
}

/// Of log-ratios.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn add(&mut self, log_ratio: f64) {
        self.sum += log_ratio;
        self.count += 1;
    }

    fn ratio(self) -> f64 {
        (self.sum / self.count as f64).exp()
    }
}

impl Ratios {
    /// The ratios of an update of the policy from these batches. Those of episodes, whose turns may lie in several batches,
    /// cost a forward pass.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(
        train: &Train,
        policy: &Policy,
        batches: &[Batch],
        temperature: f32,
    ) -> Result<Ratios, GpuError> {
        let model = policy.model.without_gradients();
        let adapter = policy.adapter.as_ref().map(Adapter::without_gradients);
        Ratios::of(train, batches, |batch| {
            let packed = batch.on(model.gpu());
            let log_probs = packed.log_probs(&model, adapter.as_ref(), temperature);
            log_probs.to_vec()
        })
    }

    /// `log_probs` gives those of a batch's pairs as they are now.
    fn of(
        train: &Train,
        batches: &[Batch],
        log_probs: impl Fn(&Batch) -> Result<Vec<f32>, GpuError>,
    ) -> Result<Ratios, GpuError> {
        let mut ratios = Ratios {
            level: train.ratio,
            clip: train.clip(),
            episodes: HashMap::new(),
        };
        if ratios.level == Ratio::Episode {
            for batch in batches {
                let now = log_probs(batch)?;
                for (token, (episode, _)) in batch.tokens.iter().zip(&batch.turns) {
                    let mean = ratios.episodes.entry(*episode).or_default();
                    mean.add(f64::from(now[token.pair as usize]) - f64::from(token.old));
                }
            }
        }
        Ok(ratios)
    }

    /// The range as the loss takes it.
    pub fn clip(&self) -> (f32, f32) {
        (self.clip[0] as f32, self.clip[1] as f32)
    }

    /// Gives the tokens of a batch, whose pairs have these log-probs now, the ratio of their turn or episode. Ratios of
    /// tokens are the loss's own affair.
    pub fn put(&self, batch: &mut Batch, now: &[f32]) -> Clipped {
        let turns: HashMap<(usize, usize), Mean>;
        let ratio: &dyn Fn(&(usize, usize)) -> f64 = match self.level {
            Ratio::Token => return Clipped::default(),
            Ratio::Turn => {
                let mut means: HashMap<(usize, usize), Mean> = HashMap::new();
                for (token, turn) in batch.tokens.iter().zip(&batch.turns) {
                    let log_ratio = f64::from(now[token.pair as usize]) - f64::from(token.old);
                    means.entry(*turn).or_default().add(log_ratio);
                }
                turns = means;
                &|turn| turns[turn].ratio()
            }
            Ratio::Episode => &|(episode, _)| self.episodes[episode].ratio(),
        };
        let [low, high] = self.clip;
        let (mut clipped, mut count) = (Clipped::default(), 0);
        for (token, turn) in batch.tokens.iter_mut().zip(&batch.turns) {
            let (ratio, advantage) = (ratio(turn), f64::from(token.advantage));
            let whole = ratio * advantage;
            let cut = ratio.clamp(1.0 - low, 1.0 + high) * advantage;
            token.old = now[token.pair as usize];
            token.advantage = whole as f32;
            if cut < whole {
                token.advantage = 0.0;
                clipped.loss -= f64::from(token.weight) * cut;
                count += 1;
            }
        }
        clipped.fraction = f64::from(count) / batch.tokens.len() as f64;
        clipped
    }
}

#[cfg(test)]
mod tests;
