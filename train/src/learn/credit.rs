//! Credit: what each turn of an episode is worth to learning, from the returns of its group. Numbers in f64, no device.

use crate::play::Episode;

/// How an episode did beside its group.
#[derive(Debug, Clone, PartialEq)]
pub struct Credit {
    /// How far the whole episode stands out: what choosing goes by.
    pub advantage: f64,
    /// The advantage of each turn, and so of each token of its reply: what learning goes by.
    pub turns: Vec<f64>,
}

/// MS-GRPO: every turn has the whole episode's advantage.
pub fn by_episode(group: &[Episode]) -> Vec<Credit> {
    let returns: Vec<Return> = group.iter().map(Return::of).collect();
    let credit = |(episode, advantage): (&Episode, f64)| Credit {
        advantage,
        turns: vec![advantage; episode.turns.len()],
    };
    group.iter().zip(advantages(&returns)).map(credit).collect()
}

/// A composite return, and how far rounding may have moved it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Return {
    /// The sum of the episode's rewards and shaping.
    pub value: f64,
    /// The most by which it differs from the exact sum.
    pub error: f64,
}

impl Return {
    /// Adding n numbers one after the other errs by at most n u times the sum of their absolute values, u = 2^-53
    /// (Higham 2002, section 4.2), the rounding of each number itself included.
    pub fn of(episode: &Episode) -> Return {
        let size = |turn: &crate::play::Turn| turn.reward.abs() + turn.shaping.abs();
        let sizes: f64 = episode.turns.iter().map(size).sum();
        let unit = f64::EPSILON / 2.0;
        Return {
            value: episode.composite_return(),
            error: episode.turns.len() as f64 * unit * sizes,
        }
    }
}

/// A_j = (C_j - mean) / (sample standard deviation + 1e-6); exact zeros if the returns are equal within rounding.
///
/// Two apples in 20 rounds of Snake give 1.8 or 1.7999999999999998, by when they were eaten. That spread means nothing
/// and must not be divided by: returns are equal if one number lies within the rounding error of all of them.
pub fn advantages(returns: &[Return]) -> Vec<f64> {
    let highest_least = returns
        .iter()
        .map(|c| c.value - c.error)
        .fold(f64::MIN, f64::max);
    let lowest_most = returns
        .iter()
        .map(|c| c.value + c.error)
        .fold(f64::MAX, f64::min);
    if highest_least <= lowest_most {
        return vec![0.0; returns.len()];
    }
    let count = returns.len() as f64;
    let mean = returns.iter().map(|c| c.value).sum::<f64>() / count;
    let variance = returns
        .iter()
        .map(|c| (c.value - mean).powi(2))
        .sum::<f64>()
        / (count - 1.0);
    returns
        .iter()
        .map(|c| (c.value - mean) / (variance.sqrt() + 1e-6))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::play::Turn;

    /// Returns without rounding.
    fn exact(values: &[f64]) -> Vec<Return> {
        values
            .iter()
            .map(|&value| Return { value, error: 0.0 })
            .collect()
    }

    fn episode(rewards: &[f64]) -> Episode {
        let turn = |&reward: &f64| Turn {
            reward,
            ..Turn::default()
        };
        Episode {
            turns: rewards.iter().map(turn).collect(),
            ..Episode::default()
        }
    }

    #[test]
    fn advantages_are_the_golden_ones() {
        let text = include_str!("../../../fixtures/golden/advantages.json");
        let golden: Value = serde_json::from_str(text).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let numbers = |key: &str| -> Vec<f64> {
                case[key]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|v| v.as_f64().unwrap())
                    .collect()
            };
            let got = advantages(&exact(&numbers("returns")));
            for (got, wanted) in got.iter().zip(numbers("advantages")) {
                assert!(
                    (got - wanted).abs() < 1e-9,
                    "{got} against {wanted} in {case}"
                );
            }
        }
    }

    #[test]
    fn returns_that_differ_by_rounding_are_equal_and_no_others_are() {
        // Two apples, eaten early or late.
        let eaten = |at: [usize; 2]| -> Vec<f64> {
            (0..20)
                .map(|turn| if at.contains(&turn) { 0.99 } else { -0.01 })
                .collect()
        };
        let (early, late) = (episode(&eaten([0, 1])), episode(&eaten([8, 10])));
        assert_ne!(early.composite_return(), late.composite_return());
        let credits = by_episode(&[early.clone(), late.clone(), early.clone()]);
        assert!(
            credits.iter().all(|credit| credit.advantage == 0.0),
            "{credits:?}"
        );
        // A millionth of a point is no rounding.
        let more = episode(&[eaten([0, 1]), vec![1e-6]].concat());
        let credits = by_episode(&[early, late, more]);
        // Hardly more than the 1e-6 in the divisor, so not a full standard deviation.
        assert!(credits[2].advantage > 0.1, "{credits:?}");
        assert_eq!(credits[2].turns, vec![credits[2].advantage; 21]);
    }

    proptest! {
        #[test]
        fn advantages_of_a_group_sum_to_zero_and_ignore_a_shift(
            returns in proptest::collection::vec(-4i32..4, 2..50), shift in -8i32..8,
        ) {
            // whole numbers, so that the shift is exact
            let returns: Vec<f64> = returns.iter().map(|c| f64::from(*c)).collect();
            let shifted: Vec<f64> = returns.iter().map(|c| c + f64::from(shift)).collect();
            let got = advantages(&exact(&returns));
            prop_assert!(got.iter().sum::<f64>().abs() < 1e-9);
            for (a, b) in got.iter().zip(advantages(&exact(&shifted))) {
                prop_assert!((a - b).abs() < 1e-9);
            }
        }

        #[test]
        fn equal_returns_have_no_advantage(value: f64, count in 1usize..20) {
            prop_assume!(value.is_finite());
            prop_assert!(advantages(&exact(&vec![value; count])).iter().all(|a| *a == 0.0));
        }

        /// The order in which the same rewards came makes no difference.
        #[test]
        fn shuffled_rewards_have_no_advantage(
            rewards in proptest::collection::vec(-3.0f64..3.0, 2..60), cut in 1usize..59,
        ) {
            let mut other = rewards.clone();
            other.rotate_left(cut % rewards.len());
            let credits = by_episode(&[episode(&rewards), episode(&other)]);
            prop_assert!(credits.iter().all(|credit| credit.advantage == 0.0));
        }
    }
}
