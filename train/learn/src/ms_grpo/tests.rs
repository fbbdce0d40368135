//! What must hold of choosing and of minibatches.

use proptest::prelude::*;

use super::*;
use crate::config::{Aggregation, Train};
use lapwing_play::{Episode, Sampled, Turn};
use lapwing_train::config::Config;

/// An episode of so many turns, with replies of one and two tokens, that returned so much.
fn episode(turns: usize, value: f64) -> Episode {
    let turn = |t: usize| Turn {
        reward: if t == 0 { value } else { 0.0 },
        sampled: Some(Sampled {
            prompt: [1, 2].into(),
            ids: vec![3; 1 + t % 2],
            log_probs: vec![-1.0; 1 + t % 2],
            entropies: vec![1.0; 1 + t % 2],
            cut: false,
        }),
        ..Turn::default()
    };
    Episode {
        turns: (0..turns).map(turn).collect(),
        ..Episode::default()
    }
}

/// Corrected weights add up to one on average, whatever the loss is a mean over: an episode's importance undoes its
/// chance. Episodes that stand out are short here, so a mean over what was drawn would not.
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
    weigh(&mut groups, &Config::default());
    for aggregation in [Aggregation::Token, Aggregation::Turn, Aggregation::Episode] {
        let train = Train {
            learn: 4,
            correction: true,
            aggregation,
            ..Train::default()
        };
        let draws = 1500;
        let mut sums = Vec::new();
        for step in 0..draws {
            let mut groups = groups.clone();
            choose(&mut groups, &train, step);
            let (chosen, expected) = all_chosen(&groups, aggregation);
            let batches = pack(&chosen, aggregation, expected, 8192);
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
    /// Nine episodes in eight minibatches are eight updates.
    #[test]
    fn there_are_as_many_minibatches_as_asked_for(episodes in 0usize..60, wanted in 1usize..12) {
        let order: Vec<usize> = (0..episodes).collect();
        let parts: Vec<&[usize]> = parts(&order, wanted).collect();
        prop_assert_eq!(parts.len(), wanted.min(episodes));
        prop_assert_eq!(parts.concat(), &order[..]);
        let lengths = || parts.iter().map(|part| part.len());
        prop_assert!(lengths().max().unwrap_or(0) <= lengths().min().unwrap_or(0) + 1);
    }
}
