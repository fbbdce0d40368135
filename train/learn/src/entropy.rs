//! Keeps the entropy of the policy within a band.
//!
//! H is the mean entropy of the tokens that a step sampled. If H is below the band, every token's advantage gets the bonus
//!
//! ```text
//! c (-l_old - h)        c = gain (low - H)
//! ```
//!
//! where h is the entropy of the distribution that the token was drawn from. If H is above the band, c = gain (high - H) is
//! negative. On average over the draws, the policy gradient of the bonus is c times the gradient of h. For each prompt
//!
//! ```text
//! grad h = -sum p grad(log p) log p = mean over draws of grad(l) (-l - h)
//! ```
//!
//! A fixed weight would fade or explode as returns grow. With a band the weight is as large as needed, and usually 0.

use lapwing_play::Episode;

use crate::config::TrainConfig;

/// Returns c for a step, which counts from 0, that played these episodes.
pub(crate) fn weight<'a>(
    train: &TrainConfig,
    step: usize,
    episodes: impl Iterator<Item = &'a Episode>,
) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for reply in episodes.flat_map(Episode::sampled) {
        sum += reply.entropies.iter().map(|h| f64::from(*h)).sum::<f64>();
        count += reply.entropies.len();
    }
    if count == 0 {
        return 0.0;
    }
    let (low, high) = (train.lowest_entropy_at(step), train.entropy_band[1]);
    let mean = sum / count as f64;
    train.entropy_gain * (mean.clamp(low, high) - mean)
}

/// Returns the bonus of a token.
pub(crate) fn bonus(weight: f64, old: f32, entropy: f32) -> f64 {
    weight * (-f64::from(old) - f64::from(entropy))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use lapwing_play::{Sampled, Turn};

    fn episode(entropies: &[f32]) -> Episode {
        let sampled = Sampled {
            prompt: [1].into(),
            ids: vec![0; entropies.len()],
            log_probs: vec![-1.0; entropies.len()],
            entropies: entropies.to_vec(),
            cut: false,
            allowed: None,
        };
        Episode {
            turns: vec![Turn {
                sampled: Some(sampled),
                ..Turn::default()
            }],
            ..Episode::default()
        }
    }

    #[test]
    fn the_bonus_is_zero_within_the_band() {
        let train = TrainConfig {
            entropy_band: [0.5, 1.5],
            entropy_gain: 0.1,
            ..TrainConfig::default()
        };
        let weight = |entropies: &[f32]| weight(&train, 0, [episode(entropies)].iter());
        assert_eq!(weight(&[0.5, 1.5]), 0.0);
        assert_eq!(weight(&[0.25, 0.25]), 0.1 * 0.25);
        assert_eq!(weight(&[2.0, 3.0]), -0.1);
        let train = TrainConfig {
            entropy_end: 0.2,
            steps: 10,
            ..train
        };
        let falling = |step: usize| super::weight(&train, step, [episode(&[0.25, 0.25])].iter());
        // Lower limits of 0.5, 0.3 and 0.1.
        let wanted = [0.1 * 0.25, 0.1 * 0.05, 0.0];
        for (step, wanted) in [0, 5, 10].into_iter().zip(wanted) {
            assert!((falling(step) - wanted).abs() < 1e-12, "step {step}");
        }
        // No model has played.
        assert_eq!(super::weight(&train, 0, [Episode::default()].iter()), 0.0);
    }

    proptest! {
        /// Compared with finite differences of the entropy with respect to the logits.
        #[test]
        fn the_policy_gradient_of_the_bonus_is_that_of_the_entropy(logits in proptest::collection::vec(-2.0f64..2.0, 2..6)) {
            let chances = |logits: &[f64]| -> Vec<f64> {
                let sum: f64 = logits.iter().map(|z| z.exp()).sum();
                logits.iter().map(|z| z.exp() / sum).collect()
            };
            let entropy = |logits: &[f64]| -> f64 { chances(logits).iter().map(|p| -p * p.ln()).sum() };
            let (p, h) = (chances(&logits), entropy(&logits));
            for k in 0..logits.len() {
                // d log p_i / d logit k = [i = k] - p_k
                let of = |i: usize| p[i] * bonus(1.0, p[i].ln() as f32, h as f32) * (f64::from(u8::from(i == k)) - p[k]);
                let drawn: f64 = (0..logits.len()).map(of).sum();
                let moved = |by: f64| {
                    let mut moved = logits.clone();
                    moved[k] += by;
                    entropy(&moved)
                };
                let wanted = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                // Log-probs and entropy are f32.
                prop_assert!((drawn - wanted).abs() < 1e-5, "{} against {}", drawn, wanted);
            }
        }
    }
}
