//! Which episodes of a group to learn from: draws without replacement, weighted by how far an episode stands out.
//!
//! AAW (arXiv 2508.10839): successive draws with weights softmax(|A| / temperature). Weights are kept as logarithms: of
//! advantages that lie far apart for the temperature, the smaller ones' weights are no numbers that f64 can hold, and
//! still one of them may be next.

use lapwing_env::rng::Stream;

use crate::config::{Sampling, Train};

/// The episodes of a group to learn from, as places in it, and the importance of each.
pub fn choose(train: &Train, advantages: &[f64], chance: &mut Stream) -> Vec<(usize, f64)> {
    let count = train.learn.min(advantages.len());
    let log_weights = match train.sampling {
        Sampling::All => return (0..advantages.len()).map(|i| (i, 1.0)).collect(),
        Sampling::Top => {
            let mut order: Vec<usize> = (0..advantages.len()).collect();
            order.sort_by(|a, b| advantages[*b].abs().total_cmp(&advantages[*a].abs()));
            return order[..count].iter().map(|i| (*i, 1.0)).collect();
        }
        Sampling::Uniform => vec![0.0; advantages.len()],
        Sampling::Aaw => log_weights(advantages, train.aaw_temperature),
    };
    let drawn = draw(&log_weights, count, chance);
    if !train.correction {
        return drawn.into_iter().map(|i| (i, 1.0)).collect();
    }
    // Scaled so that an even draw has importance 1.
    let chances = inclusion(&log_weights, count);
    let even = count as f64 / advantages.len() as f64;
    // What has no chance that f64 can hold is not drawn but by a miracle; its importance is a number all the same.
    drawn
        .into_iter()
        .map(|i| (i, even / chances[i].max(f64::MIN_POSITIVE)))
        .collect()
}

/// AAW's weights, up to a common factor: the logarithm of softmax(|A| / temperature).
fn log_weights(advantages: &[f64], temperature: f64) -> Vec<f64> {
    advantages.iter().map(|a| a.abs() / temperature).collect()
}

/// Draws `count` episodes, each draw in proportion to its weight among those that are left. Returned in order of
/// their index, so that what follows does not depend on the order of the draws.
///
/// Successive draws are an exponential race: give each episode the time -ln(u) / weight and take the earliest
/// (Efraimidis and Spirakis 2006); here its logarithm, ln(-ln(u)) - ln(weight).
fn draw(log_weights: &[f64], count: usize, chance: &mut Stream) -> Vec<usize> {
    let mut race: Vec<(f64, usize)> = log_weights
        .iter()
        .enumerate()
        // 1 - u lies in (0, 1]: the outer logarithm may be that of 0, which is the earliest time there is
        .map(|(i, weight)| ((-(1.0 - chance.unit()).ln()).ln() - weight, i))
        .collect();
    race.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut drawn: Vec<_> = race.iter().take(count).map(|(_, i)| *i).collect();
    drawn.sort_unstable();
    drawn
}

/// The chance of each episode to be among `count` drawn ones.
///
/// In the race of [`draw`], episode i is drawn if fewer than `count` others come before it. Given its own time t, the
/// others come before it independently with chance 1 - exp(-w t); how many do follows by adding them one at a time.
/// The integral over t is taken over u = exp(-w_i t), uniform on (0, 1), by Gauss-Legendre quadrature on panels that
/// get finer towards both ends, where the integrand bends. Only ratios of weights matter, and they may be infinite.
fn inclusion(log_weights: &[f64], count: usize) -> Vec<f64> {
    if count >= log_weights.len() {
        return vec![1.0; log_weights.len()];
    }
    let nodes = quadrature();
    (0..log_weights.len())
        .map(|i| {
            let ratios: Vec<f64> = log_weights
                .iter()
                .map(|w| (w - log_weights[i]).exp())
                .collect();
            let chance = |u: f64| {
                let time = -u.ln();
                // before[k]: chance that exactly k of the others so far came before
                let mut before = vec![0.0; count];
                before[0] = 1.0;
                for (j, ratio) in ratios.iter().enumerate() {
                    if j == i {
                        continue;
                    }
                    let earlier = -(-ratio * time).exp_m1();
                    for k in (0..count).rev() {
                        let from_below = if k > 0 { before[k - 1] * earlier } else { 0.0 };
                        before[k] = before[k] * (1.0 - earlier) + from_below;
                    }
                }
                before.iter().sum::<f64>()
            };
            nodes
                .iter()
                .map(|(u, weight)| weight * chance(*u))
                .sum::<f64>()
                .min(1.0)
        })
        .collect()
}

/// Points in (0, 1) and their weights.
fn quadrature() -> Vec<(f64, f64)> {
    // Five-point Gauss-Legendre on (-1, 1).
    const POINTS: [(f64, f64); 5] = [
        (-0.906_179_845_938_664, 0.236_926_885_056_189_1),
        (-0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
        (0.0, 0.568_888_888_888_888_9),
        (0.538_469_310_105_683_1, 0.478_628_670_499_366_5),
        (0.906_179_845_938_664, 0.236_926_885_056_189_1),
    ];
    // Edges at 2^-k from both ends: an episode of tiny weight is drawn only at u near 1.
    let halves = (1..=40).rev().map(|k| 0.5f64.powi(k));
    let mut edges: Vec<f64> = std::iter::once(0.0).chain(halves).collect();
    let mirrored: Vec<f64> = edges.iter().rev().skip(1).map(|e| 1.0 - e).collect();
    edges.extend(mirrored);
    edges
        .windows(2)
        .flat_map(|edge| {
            let (middle, half) = ((edge[0] + edge[1]) / 2.0, (edge[1] - edge[0]) / 2.0);
            POINTS.map(|(x, weight)| (middle + half * x, half * weight))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn numbers(value: &Value) -> Vec<f64> {
        value
            .as_array()
            .unwrap()
            .iter()
            .map(|v| v.as_f64().unwrap())
            .collect()
    }

    fn golden() -> Vec<Value> {
        let text = include_str!("../../../fixtures/golden/aaw.json");
        serde_json::from_str::<Value>(text).unwrap()["cases"]
            .as_array()
            .unwrap()
            .clone()
    }

    #[test]
    fn inclusion_chances_are_the_exact_ones() {
        for case in golden() {
            let weights = log_weights(
                &numbers(&case["advantages"]),
                case["temperature"].as_f64().unwrap(),
            );
            let got = inclusion(&weights, case["sample"].as_u64().unwrap() as usize);
            for (got, wanted) in got.iter().zip(numbers(&case["inclusion"])) {
                assert!(
                    (got - wanted).abs() < 1e-6,
                    "{got} against {wanted} in {case}"
                );
            }
        }
    }

    #[test]
    fn frequencies_follow_the_exact_chances() {
        const DRAWS: usize = 20_000;
        for (number, case) in golden().iter().enumerate() {
            let advantages = numbers(&case["advantages"]);
            let weights = log_weights(&advantages, case["temperature"].as_f64().unwrap());
            let mut counts = vec![0usize; advantages.len()];
            let mut chance = Stream::new(number as u64, "frequencies");
            for _ in 0..DRAWS {
                for i in draw(
                    &weights,
                    case["sample"].as_u64().unwrap() as usize,
                    &mut chance,
                ) {
                    counts[i] += 1;
                }
            }
            for (count, wanted) in counts.iter().zip(numbers(&case["inclusion"])) {
                // five standard deviations of a frequency, at most 5 * 0.5 / sqrt(20,000)
                assert!(
                    (*count as f64 / DRAWS as f64 - wanted).abs() < 0.018,
                    "{counts:?} in {case}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn a_draw_is_distinct_complete_and_repeatable(
            advantages in proptest::collection::vec(-5.0f64..5.0, 1..60), share in 0.0f64..1.0, seed: u64,
        ) {
            let count = (share * advantages.len() as f64) as usize;
            let weights = log_weights(&advantages, 1.0);
            let drawn = draw(&weights, count, &mut Stream::new(seed, "draw"));
            prop_assert_eq!(drawn.len(), count);
            prop_assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(drawn.iter().all(|i| *i < advantages.len()));
            prop_assert_eq!(drawn, draw(&weights, count, &mut Stream::new(seed, "draw")));
        }

        /// The expected number of drawn episodes is the number drawn.
        #[test]
        fn inclusion_chances_sum_to_the_number_drawn(
            advantages in proptest::collection::vec(-3.0f64..3.0, 2..30), share in 0.05f64..1.0,
        ) {
            let count = ((share * advantages.len() as f64) as usize).max(1);
            let sum: f64 = inclusion(&log_weights(&advantages, 1.0), count).iter().sum();
            prop_assert!((sum - count as f64).abs() < 1e-5, "{} against {}", sum, count);
        }

        #[test]
        fn a_larger_absolute_advantage_is_never_less_likely(
            advantages in proptest::collection::vec(-3.0f64..3.0, 2..12),
        ) {
            let chances = inclusion(&log_weights(&advantages, 1.0), advantages.len() / 2 + 1);
            for (a, p) in advantages.iter().zip(&chances) {
                for (b, q) in advantages.iter().zip(&chances) {
                    prop_assert!(a.abs() < b.abs() || *p > *q - 1e-6);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_way_to_choose_takes_distinct_episodes(
            advantages in proptest::collection::vec(-3.0f64..3.0, 1..40), learn in 1usize..50, seed: u64,
            temperature in -4.0f64..2.0,
        ) {
            for sampling in [Sampling::All, Sampling::Top, Sampling::Uniform, Sampling::Aaw] {
                for correction in [false, true] {
                    let aaw_temperature = 10f64.powf(temperature);
                    let train = Train { learn, sampling, correction, aaw_temperature, ..Train::default() };
                    let mut chosen = choose(&train, &advantages, &mut Stream::new(seed, "choose"));
                    let wanted = if sampling == Sampling::All { advantages.len() } else { learn.min(advantages.len()) };
                    prop_assert!(chosen.iter().all(|(i, w)| *i < advantages.len() && w.is_finite() && *w > 0.0));
                    // Only neighbours are compared.
                    chosen.sort_by_key(|(i, _)| *i);
                    chosen.dedup_by_key(|(i, _)| *i);
                    prop_assert_eq!(chosen.len(), wanted);
                }
            }
        }
    }

    /// With such a temperature the weights of all but the first are below what f64 can hold. Who comes second must still
    /// be told by them, and who comes third by chance.
    #[test]
    fn weights_that_lie_far_apart_still_count() {
        let advantages = [0.5, -3.0, 1.5, 0.5, 0.5];
        let train = Train {
            learn: 3,
            aaw_temperature: 1e-3,
            correction: true,
            ..Train::default()
        };
        let mut thirds = [0; 5];
        for seed in 0..3000 {
            let chosen = choose(&train, &advantages, &mut Stream::new(seed, "choose"));
            let places: Vec<usize> = chosen.iter().map(|(i, _)| *i).collect();
            assert!(places.contains(&1) && places.contains(&2), "{places:?}");
            for (i, importance) in chosen {
                thirds[i] += 1;
                let wanted = if [1, 2].contains(&i) { 0.6 } else { 0.6 * 3.0 };
                assert!((importance - wanted).abs() < 1e-6, "{importance} of {i}");
            }
        }
        // A third of 3000 each, with a standard deviation of 26; five of them.
        for third in [0, 3, 4] {
            assert!((870..1130).contains(&thirds[third]), "{thirds:?}");
        }
    }

    #[test]
    fn top_takes_the_largest_absolute_advantages() {
        let train = Train {
            learn: 2,
            sampling: Sampling::Top,
            ..Train::default()
        };
        let chosen = choose(
            &train,
            &[0.5, -2.0, 1.0, -0.1],
            &mut Stream::new(0, "choose"),
        );
        assert_eq!(chosen.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [1, 2]);
    }

    /// An even draw needs no correction, however it is computed.
    #[test]
    fn a_uniform_draw_has_importance_one() {
        let train = Train {
            learn: 3,
            sampling: Sampling::Uniform,
            correction: true,
            ..Train::default()
        };
        for (_, importance) in choose(
            &train,
            &[0.5, -2.0, 1.0, -0.1, 0.0],
            &mut Stream::new(4, "choose"),
        ) {
            assert!((importance - 1.0).abs() < 1e-6, "{importance}");
        }
    }
}
