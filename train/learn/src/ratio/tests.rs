//! Gradients of tokens compared with finite differences of the loss as written in the paper.

use lapwing_play::{Episode, Sampled, Turn};
use proptest::prelude::*;

use super::*;
use crate::batch::{SelectedEpisode, count, pack};
use crate::config::Aggregation;

type Replies = Vec<Vec<(u32, Vec<u32>)>>;

/// Episodes of turns, each a prompt of one token and a reply with log-probs -1.
fn played(replies: &Replies) -> Vec<Episode> {
    let turn = |(prompt, ids): &(u32, Vec<u32>)| Turn {
        sampled: Some(Sampled {
            prompt: [*prompt].into(),
            log_probs: vec![-1.0; ids.len()],
            entropies: vec![0.0; ids.len()],
            ids: ids.clone(),
            cut: false,
            allowed: None,
        }),
        ..Turn::default()
    };
    let episode = |turns: &Vec<_>| Episode {
        turns: turns.iter().map(turn).collect(),
        ..Episode::default()
    };
    replies.iter().map(episode).collect()
}

fn batches(episodes: &[Episode], advantages: &[Vec<f64>], limit: usize) -> Vec<Batch> {
    let all: Vec<SelectedEpisode<'_>> = episodes
        .iter()
        .zip(advantages)
        .map(|(episode, advantages)| SelectedEpisode {
            episode,
            advantages,
            entropy_weight: 0.0,
        })
        .collect();
    let over = count(episodes.iter(), Aggregation::Token);
    pack(&all, Aggregation::Token, over, limit)
}

/// The loss at these log-probs, by batch and pair: - sum c min(s A, clip(s) A), as in the paper.
fn loss(train: &TrainConfig, batches: &[Batch], now: &[Vec<f32>]) -> f64 {
    let key = |turn: (usize, usize)| match train.ratio {
        Ratio::Turn => turn,
        _ => (turn.0, 0),
    };
    let mut means: HashMap<(usize, usize), Mean> = HashMap::new();
    for (batch, now) in batches.iter().zip(now) {
        for (token, turn) in batch.tokens.iter().zip(&batch.turns) {
            let mean = means.entry(key(*turn)).or_default();
            mean.add(f64::from(now[token.pair as usize]) - f64::from(token.old));
        }
    }
    let [low, high] = train.clip();
    let mut loss = 0.0;
    for (token, turn) in batches.iter().flat_map(|b| b.tokens.iter().zip(&b.turns)) {
        let (s, a) = (means[&key(*turn)].ratio(), f64::from(token.advantage));
        loss -= f64::from(token.weight) * (s * a).min(s.clamp(1.0 - low, 1.0 + high) * a);
    }
    loss
}

fn replies() -> impl Strategy<Value = Replies> {
    let reply = proptest::collection::vec(0u32..3, 1..4);
    proptest::collection::vec(proptest::collection::vec((0u32..3, reply), 1..4), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// However the turns are cut into batches.
    #[test]
    fn slopes_and_losses_are_those_of_the_formula(
        replies in replies(), limit in 1usize..40, seed: u64, by_turn: bool,
    ) {
        let mut chance = lapwing_env::rng::Stream::new(seed, "ratio");
        let episodes = played(&replies);
        let advantages: Vec<Vec<f64>> = episodes
            .iter()
            .map(|e| {
                // One for the whole episode where its tokens share a ratio.
                let whole = chance.unit() * 4.0 - 2.0;
                e.turns.iter().map(|_| if by_turn { chance.unit() * 4.0 - 2.0 } else { whole }).collect()
            })
            .collect();
        let train = TrainConfig {
            ratio: if by_turn { Ratio::Turn } else { Ratio::Episode },
            turn_clip: [0.1, 0.2],
            episode_clip: [0.1, 0.2],
            ..TrainConfig::default()
        };
        let before = batches(&episodes, &advantages, limit);
        // Multiples of 2^-10 around -1, so that a small step is exact in f32.
        let now: Vec<Vec<f32>> = before
            .iter()
            .map(|b| b.rows.iter().map(|_| -1.0 + (chance.below(1025) as f32 - 512.0) / 1024.0).collect())
            .collect();
        let number = |batch: &Batch| before.iter().position(|b| b.turns == batch.turns && b.rows == batch.rows).unwrap();
        let ratios = Ratios::of(&train, &before, |batch| Ok(now[number(batch)].clone())).unwrap();
        let mut after = batches(&episodes, &advantages, limit);
        let mut total = 0.0;
        for (number, batch) in after.iter_mut().enumerate() {
            let clipped = ratios.apply(batch, &now[number]);
            total += clipped.loss;
            let mut slopes = vec![0.0; batch.rows.len()];
            for token in &batch.tokens {
                prop_assert_eq!(token.old, now[number][token.pair as usize]);
                let part = f64::from(token.weight) * f64::from(token.advantage);
                total -= part;
                slopes[token.pair as usize] -= part;
            }
            let dead = batch.tokens.iter().filter(|token| token.advantage == 0.0).count();
            prop_assert!((clipped.fraction - dead as f64 / batch.tokens.len() as f64).abs() < 1e-12);
            for (pair, slope) in slopes.into_iter().enumerate() {
                let moved = |by: f32| {
                    let mut now = now.clone();
                    now[number][pair] += by;
                    loss(&train, &before, &now)
                };
                const BY: f32 = 1.0 / 8192.0;
                let difference = (moved(BY) - moved(-BY)) / (2.0 * f64::from(BY));
                // On the edge of the range there is no slope; such a point shows in the second difference.
                let bend = (moved(BY) - 2.0 * moved(0.0) + moved(-BY)).abs() / f64::from(BY);
                prop_assert!(bend > 1e-3 || (slope - difference).abs() < 1e-3, "{} against {}", slope, difference);
            }
        }
        let wanted = loss(&train, &before, &now);
        prop_assert!((total - wanted).abs() < 1e-5, "{} against {}", total, wanted);
    }
}
