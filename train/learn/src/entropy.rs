//! Entropy kept in a band.
//!
//! The mean entropy H of the tokens that a step sampled is held between two bounds: below the lower one every token's
//! advantage gets
//!
//! ```text
//! c (-l_old - h)        c = gain (low - H)
//! ```
//!
//! more, where h is the entropy of what it was drawn from; above the upper one c = gain (high - H) is negative. On average
//! over what is drawn, its policy gradient is c times that of h: for each prompt
//!
//! ```text
//! grad h = -sum p grad(log p) log p = mean over draws of grad(l) (-l - h)
//! ```
//!
//! Whoever sets a fixed weight has to guess one that neither fades nor explodes as returns grow; in the band the weight is
//! what is needed, and zero as a rule.

use crate::config::Train;
use lapwing_play::Episode;

/// c, for a step that played these episodes.
pub fn weight<'a>(train: &Train, episodes: impl Iterator<Item = &'a Episode>) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for reply in episodes.flat_map(Episode::sampled) {
        sum += reply.entropies.iter().map(|h| f64::from(*h)).sum::<f64>();
        count += reply.entropies.len();
    }
    if count == 0 {
        return 0.0;
    }
    let [low, high] = train.entropy_band;
    let mean = sum / count as f64;
    train.entropy_gain * (mean.clamp(low, high) - mean)
}

/// What a token's advantage gets.
pub fn bonus(weight: f64, old: f32, entropy: f32) -> f64 {
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
    fn within_the_band_nothing_is_added() {
        let train = Train {
            entropy_band: [0.5, 1.5],
            entropy_gain: 0.1,
            ..Train::default()
        };
        let weight = |entropies: &[f32]| weight(&train, [episode(entropies)].iter());
        assert_eq!(weight(&[0.5, 1.5]), 0.0);
        assert_eq!(weight(&[0.25, 0.25]), 0.1 * 0.25);
        assert_eq!(weight(&[2.0, 3.0]), -0.1);
        // Nobody of ours has played.
        assert_eq!(super::weight(&train, [Episode::default()].iter()), 0.0);
    }

    proptest! {
        /// On average over what is drawn it is the gradient of the entropy, here by the logits, by differences.
        #[test]
        fn its_policy_gradient_is_that_of_the_entropy(logits in proptest::collection::vec(-2.0f64..2.0, 2..6)) {
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
                // log-probs and entropy are f32
                prop_assert!((drawn - wanted).abs() < 1e-5, "{} against {}", drawn, wanted);
            }
        }
    }
}
