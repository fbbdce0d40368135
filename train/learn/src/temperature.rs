//! A sampling temperature that follows the spread of returns.
//!
//! A group whose returns are equal teaches nothing. Where returns lie closer together than is wanted, the next step is
//! played warmer; where they lie further apart, colder:
//!
//! ```text
//! T' = T exp(rate clamp(1 - s / wanted, -1, 1))        within policy.temperature_range
//! ```
//!
//! s is the mean over the groups of the standard deviation of their returns. Log-probs are those of the distribution that
//! was sampled from, so that every step is as much on its policy as with a fixed temperature.

use crate::credit::spread;
use crate::group::Group;
use lapwing_play::config::Policy;

/// The temperature of the step after one that played these groups at `now`.
pub fn next(policy: &Policy, now: f64, groups: &[Group]) -> f64 {
    if policy.spread == 0.0 || groups.is_empty() {
        return now;
    }
    let spreads = groups.iter().map(|group| spread(&group.episodes));
    let mean = spreads.sum::<f64>() / groups.len() as f64;
    let [coldest, warmest] = policy.temperature_range;
    let pull = (1.0 - mean / policy.spread).clamp(-1.0, 1.0);
    (now * (policy.temperature_rate * pull).exp()).clamp(coldest, warmest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_play::{Episode, Turn};

    /// Two episodes with a standard deviation of so much.
    fn group(spread: f64) -> Group {
        let one = |reward| Episode {
            turns: vec![Turn {
                reward,
                ..Turn::default()
            }],
            ..Episode::default()
        };
        Group {
            episodes: vec![one(0.0), one(spread * 2f64.sqrt())],
            ..Group::default()
        }
    }

    #[test]
    fn it_rises_where_all_fare_alike_and_falls_where_they_do_not() {
        let policy = Policy {
            spread: 0.5,
            temperature_rate: 0.1,
            temperature_range: [0.5, 2.0],
            ..Policy::default()
        };
        let after = |now, spreads: &[f64]| {
            let groups: Vec<Group> = spreads.iter().map(|s| group(*s)).collect();
            next(&policy, now, &groups)
        };
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} against {b}");
        near(after(1.0, &[0.5, 0.5]), 1.0);
        near(after(1.0, &[0.0, 1.0]), 1.0);
        near(after(1.0, &[0.0]), 0.1f64.exp());
        near(after(1.0, &[0.25]), 0.05f64.exp());
        // However far they lie apart.
        near(after(1.0, &[40.0]), (-0.1f64).exp());
        assert_eq!(after(1.95, &[0.0]), 2.0);
        assert_eq!(after(0.51, &[40.0]), 0.5);
        let fixed = Policy::default();
        assert_eq!(next(&fixed, 1.3, &[group(0.0)]), 1.3);
    }
}
