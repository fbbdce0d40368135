//! Importance ratios of whole turns and whole episodes instead of single tokens (GSPO, arXiv 2507.18071).
//!
//! All tokens of a turn, or of an episode, share one ratio, the geometric mean of theirs:
//!
//! ```text
//! s = exp(mean over its tokens of l - l_old)
//! ```
//!
//! Each token adds min(s A, clip(s) A) to the objective. Its gradient is s A times that of its log-prob, or 0 if it is
//! clipped (GSPO-token with one advantage for all). The host knows s before the loss is computed. So a token gets s A (or 0)
//! as its advantage and its current log-prob as the old one, and the loss of [`ms_grpo`](crate::ms_grpo) has that gradient.
//!
//! A mean over tokens moves less than a token, so the clip ranges are narrower: a range for tokens would never clip.

use std::collections::HashMap;

use lapwing_model::Adapter;
use lapwing_play::players::model::Policy;
use lapwing_tensor::GpuError;
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::config::{Ratio, TrainConfig};

/// The ratios of an update.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ratios {
    level: Ratio,
    clip: [f64; 2],
    /// mean log-ratio of each selected episode, with `train.ratio = "episode"`
    episodes: HashMap<usize, Mean>,
}

/// The part of the loss and of the clip fraction that the host computes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Clipped {
    /// loss of the clipped tokens
    pub(crate) loss: f64,
    /// share of the clipped tokens
    pub(crate) fraction: f64,
}

/// A mean of log-ratios.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
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
    /// Computes the ratios of an update. Ratios of episodes cost a forward pass, because the turns of an episode may lie in
    /// several batches.
    pub(crate) fn new(
        train: &TrainConfig,
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

    /// `log_probs` returns the current log-probs of a batch's pairs.
    fn of(
        train: &TrainConfig,
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

    /// Returns the clip range of the loss, down and up.
    pub(crate) fn clip(&self) -> (f32, f32) {
        (self.clip[0] as f32, self.clip[1] as f32)
    }

    /// Applies the ratio of its turn or episode to each token, given the current log-probs of the pairs. Ratios of tokens
    /// are part of the loss.
    pub(crate) fn apply(&self, batch: &mut Batch, now: &[f32]) -> Clipped {
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
