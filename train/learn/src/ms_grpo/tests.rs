//! Selection, importance correction and minibatches.

use lapwing_play::{Sampled, Turn};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::config::Aggregation;
use crate::importance::inclusion;
use crate::testing::TestSettings;

/// An episode of this many turns and this return, with replies of one and two tokens.
fn episode(turns: usize, value: f64) -> Episode {
    let turn = |t: usize| Turn {
        reward: if t == 0 { value } else { 0.0 },
        sampled: Some(Sampled {
            prompt: [1, 2].into(),
            ids: vec![3; 1 + t % 2],
            log_probs: vec![-1.0; 1 + t % 2],
            entropies: vec![1.0; 1 + t % 2],
            cut: false,
            allowed: None,
        }),
        ..Turn::default()
    };
    Episode {
        turns: (0..turns).map(turn).collect(),
        ..Episode::default()
    }
}

/// Corrected weights add up to one on average with every aggregation. Here extreme episodes are short, so that a mean over
/// the drawn tokens would be biased.
#[test]
fn corrected_weights_add_up_to_one_on_average() {
    let played: Vec<Vec<Episode>> = (0..2)
        .map(|group| {
            (0..12)
                .map(|i| episode(1 + i + group, 1.0 / (1 + i * i) as f64))
                .collect()
        })
        .collect();
    let mut groups: Vec<Group> = played
        .into_iter()
        .map(|episodes| Group {
            episodes,
            ..Group::default()
        })
        .collect();
    assign_advantages(&mut groups, &TestSettings::default().options());
    for aggregation in [Aggregation::Token, Aggregation::Turn, Aggregation::Episode] {
        let train = TrainConfig {
            learn: 4,
            correction: true,
            aggregation,
            ..TrainConfig::default()
        };
        let draws = 1500;
        let mut sums = Vec::new();
        for step in 0..draws {
            let mut groups = groups.clone();
            select(&mut groups, &train, step);
            let (all, expected) = selected(&groups, aggregation);
            let batches = pack(&all, aggregation, expected, 8192);
            let weights = batches.iter().flat_map(|batch| &batch.tokens);
            sums.push(weights.map(|token| f64::from(token.weight)).sum::<f64>());
        }
        let mean = sums.iter().sum::<f64>() / f64::from(draws as u32);
        let variance =
            sums.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / f64::from(draws as u32);
        // Four standard errors.
        let tolerance = 4.0 * (variance / f64::from(draws as u32)).sqrt();
        assert!(
            tolerance < 0.05 && (mean - 1.0).abs() < tolerance,
            "{aggregation:?}: {mean} +- {tolerance}"
        );
    }
}

proptest! {
    /// For example, nine episodes in eight minibatches are eight updates.
    #[test]
    fn there_are_as_many_minibatches_as_configured(episodes in 0usize..60, wanted in 1usize..12) {
        let order: Vec<usize> = (0..episodes).collect();
        let parts: Vec<&[usize]> = parts(&order, wanted).collect();
        prop_assert_eq!(parts.len(), wanted.min(episodes));
        prop_assert_eq!(parts.concat(), &order[..]);
        let lengths = || parts.iter().map(|part| part.len());
        prop_assert!(lengths().max().unwrap_or(0) <= lengths().min().unwrap_or(0) + 1);
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect()
}

fn golden() -> Vec<Value> {
    let text = include_str!("../../../../fixtures/golden/aaw.json");
    serde_json::from_str::<Value>(text).unwrap()["cases"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn inclusion_probabilities_are_the_golden_ones() {
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
fn frequencies_match_the_golden_probabilities() {
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
            // Five standard deviations of a frequency are at most 5 * 0.5 / sqrt(20,000).
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
    fn inclusion_probabilities_sum_to_the_number_drawn(
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

/// Selects among episodes whose returns are their advantages.
fn sampled(train: &TrainConfig, advantages: &[f64], random: &mut Stream) -> Vec<(usize, f64)> {
    let returns = advantages.iter().map(|value| Return {
        value: *value,
        error: 0.0,
    });
    sample(train, advantages, &returns.collect::<Vec<_>>(), random)
}

proptest! {
    #[test]
    fn every_sampling_selects_distinct_episodes(
        advantages in proptest::collection::vec(-3.0f64..3.0, 1..40), learn in 1usize..50, seed: u64,
        temperature in -4.0f64..2.0,
    ) {
        for sampling in [Sampling::All, Sampling::Top, Sampling::Variance, Sampling::Uniform, Sampling::Aaw] {
            for correction in [false, true] {
                let aaw_temperature = 10f64.powf(temperature);
                let train = TrainConfig { learn, sampling, correction, aaw_temperature, ..TrainConfig::default() };
                let mut chosen = sampled(&train, &advantages, &mut Stream::new(seed, "choose"));
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

/// At this temperature all weights but the first are below what f64 can hold. They must still decide the second draw; the
/// third is random.
#[test]
fn very_small_weights_still_count() {
    let advantages = [0.5, -3.0, 1.5, 0.5, 0.5];
    let train = TrainConfig {
        learn: 3,
        aaw_temperature: 1e-3,
        correction: true,
        ..TrainConfig::default()
    };
    let mut thirds = [0; 5];
    for seed in 0..3000 {
        let chosen = sampled(&train, &advantages, &mut Stream::new(seed, "choose"));
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
fn the_learning_rate_rises_and_falls() {
    let train = TrainConfig {
        lr: 1.0,
        lr_end: 0.2,
        warmup: 1,
        steps: 4,
        ..TrainConfig::default()
    };
    // Past the last step it stays.
    for (step, wanted) in [(0, 0.5), (1, 0.8), (2, 0.6), (3, 0.4), (9, 0.2)] {
        let lr = train.lr_at(step);
        assert!((lr - wanted).abs() < 1e-12, "{lr} in step {step}");
    }
}

#[test]
fn top_takes_the_largest_absolute_advantages() {
    let train = TrainConfig {
        learn: 2,
        sampling: Sampling::Top,
        ..TrainConfig::default()
    };
    let chosen = sampled(
        &train,
        &[0.5, -2.0, 1.0, -0.1],
        &mut Stream::new(0, "choose"),
    );
    assert_eq!(chosen.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [1, 2]);
}

/// Compared with all subsets.
#[test]
fn the_variance_of_the_selected_returns_is_the_largest() {
    let mut random = Stream::new(1, "returns");
    for _ in 0..200 {
        let values: Vec<f64> = (0..7).map(|_| random.below(5) as f64).collect();
        let learn = 1 + random.below(7);
        let train = TrainConfig {
            learn,
            sampling: Sampling::Variance,
            ..TrainConfig::default()
        };
        let spread = |places: &[usize]| {
            let mean = places.iter().map(|i| values[*i]).sum::<f64>() / places.len() as f64;
            let squares = places.iter().map(|i| (values[*i] - mean).powi(2));
            squares.sum::<f64>()
        };
        let chosen = sampled(&train, &values, &mut random);
        let chosen: Vec<usize> = chosen.into_iter().map(|(i, _)| i).collect();
        let subsets = (0u32..1 << 7).filter(|set| set.count_ones() as usize == learn);
        let best = subsets.map(|set| {
            let places: Vec<usize> = (0..7).filter(|i| set >> i & 1 == 1).collect();
            spread(&places)
        });
        let best = best.fold(0.0, f64::max);
        assert!(
            (spread(&chosen) - best).abs() < 1e-9,
            "{values:?}: {chosen:?}"
        );
    }
}

/// A draw with equal weights needs no correction.
#[test]
fn a_uniform_draw_has_importance_one() {
    let train = TrainConfig {
        learn: 3,
        sampling: Sampling::Uniform,
        correction: true,
        ..TrainConfig::default()
    };
    for (_, importance) in sampled(
        &train,
        &[0.5, -2.0, 1.0, -0.1, 0.0],
        &mut Stream::new(4, "choose"),
    ) {
        assert!((importance - 1.0).abs() < 1e-6, "{importance}");
    }
}

/// One turn does not reach the goal, so all returns are equal.
#[test]
fn the_entropy_band_acts_on_groups_of_equal_returns() {
    let stepped = |band: &str| {
        let band = format!("train.entropy_band={band}");
        let changes = [
            "game.options.step_limit=1",
            "policy.format_penalty=0",
            "train.groups=2",
            "train.group_size=8",
            // The filter compares returns, and leaves out none of these.
            "train.filter=0.9",
            &band,
        ];
        let settings = TestSettings::load("frozen-lake", &changes);
        let mut learner = settings.language();
        step(&mut learner, &settings.options(), 0, &()).unwrap().0
    };
    let low = stepped("[2, 3]");
    assert_eq!(low.groups_skipped, Some(0));
    assert!(low.entropy_weight.unwrap() > 0.0);
    assert!(low.learned.unwrap().grad_norm > 0.0);
    let within = stepped("[0, 100]");
    assert_eq!((within.groups_skipped, within.learned), (Some(2), None));
    assert_eq!(within.entropy_weight, None);
}

/// Replies of several tokens, in conversations and without.
#[test]
fn the_tokens_of_a_step_are_those_that_one_process_computes() {
    for turns in ["policy.history=0", "policy.history=2"] {
        let changes = [turns, "policy.max_new_tokens=3", "train.groups=2"];
        let settings = TestSettings::load("frozen-lake", &changes);
        let mut learner = settings.language();
        let played = rollout(&mut learner, &settings.options(), 0, &()).unwrap();
        assert_eq!(played.tokens_computed, learner.policy.arena.computed());
    }
}
