//! Three uses of how far returns spread: a filter of groups, an adaptive sampling temperature, and the subset of a group that
//! spreads most ([`extremes`]).
//!
//! **Filter** (RAGEN-2's "top-p"): a settled policy plays some scenes almost alike, and the remaining differences are mostly
//! chance. [`filter`] keeps the groups with the widest returns.
//!
//! **Temperature**: a group of equal returns contributes nothing. If the mean spread s is below the target, the next step
//! samples at a higher temperature, otherwise at a lower one:
//!
//! ```text
//! T' = T exp(rate clamp(1 - s / target, -1, 1))        within policy.temperature_range
//! ```
//!
//! Log-probs are those of the tempered distribution, so each step stays on-policy.

use crate::credit::Return;
use lapwing_play::config::PolicyConfig;

/// Returns whether each group is kept: those of the largest spreads, in falling order until their sum reaches `share` of
/// the whole sum. A share of 1 keeps all groups.
pub(crate) fn filter(spreads: &[f64], share: f64) -> Vec<bool> {
    if share >= 1.0 {
        return vec![true; spreads.len()];
    }
    let wanted = share * spreads.iter().sum::<f64>();
    let mut order: Vec<usize> = (0..spreads.len()).collect();
    // The sort is stable: the first of equals comes first.
    order.sort_by(|a, b| spreads[*b].total_cmp(&spreads[*a]));
    let (mut kept, mut sum) = (vec![false; spreads.len()], 0.0);
    for group in order {
        if sum >= wanted {
            break;
        }
        kept[group] = true;
        sum += spreads[group];
    }
    kept
}

/// Returns the temperature of the step after one that sampled at `temperature`.
pub(crate) fn next_temperature(policy: &PolicyConfig, temperature: f64, spreads: &[f64]) -> f64 {
    if policy.spread == 0.0 || spreads.is_empty() {
        return temperature;
    }
    let mean = spreads.iter().sum::<f64>() / spreads.len() as f64;
    let [lowest, highest] = policy.temperature_range;
    let pull = (1.0 - mean / policy.spread).clamp(-1.0, 1.0);
    (temperature * (policy.temperature_rate * pull).exp()).clamp(lowest, highest)
}

/// Returns the `count` episodes with the largest absolute advantages, each with the importance 1.
pub(crate) fn largest(advantages: &[f64], count: usize) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..advantages.len()).collect();
    order.sort_by(|a, b| advantages[*b].abs().total_cmp(&advantages[*a].abs()));
    order[..count].iter().map(|i| (*i, 1.0)).collect()
}

/// Returns the `count` episodes whose returns have the largest variance, each with the importance 1. They are the k highest
/// and `count - k` lowest for some k (PODS, arXiv 2504.13818), so all k are tried.
pub(crate) fn extremes(returns: &[Return], count: usize) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..returns.len()).collect();
    order.sort_by(|a, b| returns[*b].value.total_cmp(&returns[*a].value));
    let subset = |k: usize| [&order[..k], &order[order.len() - (count - k)..]].concat();
    let squares = |k: usize| {
        let values = subset(k).into_iter().map(|i| returns[i].value);
        let mean = values.clone().sum::<f64>() / count as f64;
        values.map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    let best = (0..=count).max_by(|a, b| squares(*a).total_cmp(&squares(*b)));
    let mut chosen = subset(best.unwrap_or(0));
    chosen.sort_unstable();
    chosen.into_iter().map(|i| (i, 1.0)).collect()
}

#[cfg(test)]
mod tests {
    use lapwing_play::{Episode, Turn};
    use proptest::prelude::*;

    use super::*;
    use crate::batch::Group;
    use crate::ms_grpo::spread_of;

    /// The spread of two episodes whose returns differ by this much.
    fn spread(difference: f64) -> f64 {
        let episode = |reward| Episode {
            turns: vec![Turn {
                reward,
                ..Turn::default()
            }],
            ..Episode::default()
        };
        spread_of(&Group {
            episodes: vec![episode(0.0), episode(difference)],
            ..Group::default()
        })
    }

    fn kept(differences: &[f64], share: f64) -> Vec<bool> {
        let spreads: Vec<f64> = differences.iter().map(|d| spread(*d)).collect();
        filter(&spreads, share)
    }

    #[test]
    fn the_widest_groups_are_kept() {
        let differences = [1.0, 6.0, 0.0, 3.0];
        assert_eq!(kept(&differences, 0.6), [false, true, false, false]);
        assert_eq!(kept(&differences, 0.65), [false, true, false, true]);
        assert_eq!(kept(&differences, 0.95), [true, true, false, true]);
        assert_eq!(kept(&differences, 1.0), [true; 4]);
        // Without any spread nothing is kept, and nothing is divided by 0.
        assert_eq!(kept(&[0.0, 0.0], 0.9), [false; 2]);
    }

    proptest! {
        /// The kept groups hold the share, would not without the narrowest of them, and are wider than the others.
        #[test]
        fn the_fewest_that_hold_the_share_are_kept(
            differences in proptest::collection::vec(0.0f64..5.0, 1..12), share in 0.05f64..0.99,
        ) {
            let kept = kept(&differences, share);
            let of = |wanted: bool| -> Vec<f64> {
                differences.iter().zip(&kept).filter(|(_, k)| **k == wanted).map(|(a, _)| *a).collect()
            };
            let (inside, outside) = (of(true), of(false));
            let narrowest = inside.iter().copied().fold(f64::INFINITY, f64::min);
            let (sum, all): (f64, f64) = (inside.iter().sum(), differences.iter().sum());
            prop_assert!(sum >= share * all - 1e-9);
            prop_assert!(inside.is_empty() || sum - narrowest < share * all + 1e-9);
            prop_assert!(outside.iter().all(|a| *a <= narrowest));
        }
    }

    #[test]
    fn the_temperature_rises_if_returns_are_alike_and_falls_if_they_differ() {
        let policy = PolicyConfig {
            spread: 0.5,
            temperature_rate: 0.1,
            temperature_range: [0.5, 2.0],
            ..PolicyConfig::default()
        };
        let after = |temperature, spreads: &[f64]| {
            let spreads: Vec<f64> = spreads.iter().map(|s| spread(*s * 2f64.sqrt())).collect();
            next_temperature(&policy, temperature, &spreads)
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} against {b}");
        near(after(1.0, &[0.5, 0.5]), 1.0);
        near(after(1.0, &[0.0, 1.0]), 1.0);
        near(after(1.0, &[0.0]), 0.1f64.exp());
        near(after(1.0, &[0.25]), 0.05f64.exp());
        // The pull is bounded.
        near(after(1.0, &[40.0]), (-0.1f64).exp());
        assert_eq!(after(1.95, &[0.0]), 2.0);
        assert_eq!(after(0.51, &[40.0]), 0.5);
        let fixed = PolicyConfig::default();
        assert_eq!(next_temperature(&fixed, 1.3, &[0.0]), 1.3);
    }
}
