//! Groups of episodes, and the batches that an update computes from the selected ones.
//!
//! [`pack`] merges the prompts and replies of the selected episodes into packed token trees, and computes how much each
//! token contributes to the loss.

use std::collections::HashMap;
use std::sync::Arc;

use lapwing_env::rng::Stream;
use lapwing_model::{Adapter, KeptResults, Model, PackedTree, TokenTree, Tokens};
use lapwing_play::{Episode, Sampled, seeds};
use lapwing_tensor::{
    Gpu, Indices, Tensor,
    rl::{LmHead, LossToken},
};
use serde::{Deserialize, Serialize};

use crate::config::{Aggregation, TrainConfig};
use crate::entropy::bonus;
use crate::metrics::larger_or_nan;

/// The episodes of one agent on one scene, which are compared with each other.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Index of the game among the learner's worlds.
    pub world: usize,
    /// Seed of the scene.
    pub scene: u64,
    /// Index of the agent.
    pub agent: usize,
    /// The played episodes.
    pub episodes: Vec<Episode>,
    /// For each episode, the critic's values of its states and of the state after the last turn. Empty without a critic.
    pub values: Vec<Vec<f64>>,
    /// The advantages of each episode.
    pub advantages: Vec<EpisodeAdvantage>,
    /// Weight of the entropy in the advantages of tokens.
    pub entropy_weight: f64,
    /// Indices of the episodes to train on. Empty if the group is skipped.
    pub selected: Vec<usize>,
}

impl Group {
    /// Whether an advantage differs from 0. None does if all episodes were alike.
    pub(crate) fn has_advantages(&self) -> bool {
        self.advantages
            .iter()
            .any(|episode| episode.weight() != 0.0)
    }
}

/// The advantages of an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeAdvantage {
    /// The mean of its turns' advantages.
    pub mean: f64,
    /// The advantage of each turn, shared by all tokens of its reply.
    pub turns: Vec<f64>,
}

impl EpisodeAdvantage {
    pub(crate) fn new(turns: Vec<f64>) -> EpisodeAdvantage {
        let first = turns.first().copied().unwrap_or_default();
        let mean = match turns.iter().all(|a| *a == first) {
            // Equal to the bit, which a computed mean might not be.
            true => first,
            false => turns.iter().sum::<f64>() / turns.len() as f64,
        };
        EpisodeAdvantage { mean, turns }
    }

    /// The weight |A| of the episode in sampling: the root mean square of its turns' advantages, so that good and bad turns
    /// do not cancel out.
    pub(crate) fn weight(&self) -> f64 {
        if self.turns.iter().all(|a| *a == self.mean) {
            return self.mean.abs();
        }
        let squares: f64 = self.turns.iter().map(|a| a * a).sum();
        (squares / self.turns.len() as f64).sqrt()
    }
}

/// An episode to train on.
#[derive(Debug, Clone, Copy)]
pub struct SelectedEpisode<'a> {
    /// The episode.
    pub episode: &'a Episode,
    /// The advantage of each of its turns.
    pub advantages: &'a [f64],
    /// Weight of the entropy in the advantages of its tokens; 0 within `train.entropy_band`.
    pub entropy_weight: f64,
}

/// Returns the selected episodes of all groups.
pub fn selected(groups: &[Group]) -> Vec<SelectedEpisode<'_>> {
    let of = |group| {
        let Group {
            episodes,
            advantages,
            selected,
            entropy_weight,
            ..
        }: &Group = group;
        selected.iter().map(|member| SelectedEpisode {
            episode: &episodes[*member],
            advantages: &advantages[*member].turns,
            entropy_weight: *entropy_weight,
        })
    };
    groups.iter().flat_map(of).collect()
}

/// Returns the selected episodes in the order in which minibatches take them, shuffled if there are several minibatches.
///
/// If each gets two groups or more, skipped ones included, the episodes of a group stay together: many of their states are
/// equal, and are computed once in a minibatch. With one group for each, Snake ended lower (LOG.md).
pub(crate) fn ordered<'a>(
    groups: &'a [Group],
    train: &TrainConfig,
    step_and_pass: [usize; 2],
) -> Vec<SelectedEpisode<'a>> {
    let mut all = selected(groups);
    if train.minibatches > 1 {
        let seed = seeds::derive(train.seed, "minibatches", &step_and_pass);
        let mut random = Stream::new(seed, "minibatches");
        if groups.len() >= 2 * train.minibatches {
            let mut order: Vec<&[Group]> = groups.chunks(1).collect();
            random.shuffle(&mut order);
            all = order.into_iter().flat_map(selected).collect();
        } else {
            random.shuffle(&mut all);
        }
    }
    all
}

/// The effective number of selected episodes: (sum w)^2 / sum w^2, with w the |A| of an episode (Kish 1965). `None` if none is
/// selected.
pub(crate) fn effective_episodes(groups: &[Group]) -> Option<f64> {
    let (mut sum, mut squares) = (0.0, 0.0);
    for group in groups {
        for member in &group.selected {
            let weight = group.advantages[*member].weight();
            sum += weight;
            squares += weight * weight;
        }
    }
    (squares > 0.0).then(|| sum * sum / squares)
}

/// The part of an update that goes through the model at once (a micro-batch).
#[derive(Clone, Serialize, Deserialize)]
pub struct Batch {
    /// Prompts and replies with equal prefixes merged. The last token of a reply is left out: it predicts nothing.
    pub tree: PackedTree,
    /// For each pair, the packed position whose hidden state predicts the token.
    pub rows: Vec<u32>,
    /// For each pair, the sampled token.
    pub targets: Vec<u32>,
    /// For each pair, the tokens that the target was sampled from; empty: all tokens.
    pub allowed: Vec<Arc<[u32]>>,
    /// All sampled tokens. Equal tokens sampled after equal prefixes from equal sets share a pair. `reference` equals `old`
    /// until it is filled in.
    pub tokens: Vec<LossToken>,
    /// For each token, the index of its episode among the selected ones, and its turn.
    pub turns: Vec<(usize, usize)>,
}

/// A batch on the device.
pub struct Packed {
    tokens: Tokens,
    rows: Indices,
    targets: Indices,
    allowed: Vec<Arc<[u32]>>,
}

impl Packed {
    /// Returns the log-prob of each pair's target at this sampling temperature (P). It is tracked if the model or the
    /// adapter is.
    pub fn log_probs(&self, model: &Model, adapter: Option<&Adapter>, temperature: f32) -> Tensor {
        let hidden = model.forward(&self.tokens, adapter);
        self.log_probs_of(&hidden, &model.head(adapter), temperature)
    }

    /// The same, given what the rollout with this model and adapter kept.
    pub(crate) fn known_log_probs(
        &self,
        model: &Model,
        adapter: Option<&Adapter>,
        kept: &KeptResults,
        temperature: f32,
    ) -> Tensor {
        let hidden = model.forward_known(&self.tokens, adapter, kept);
        self.log_probs_of(&hidden, &model.head(adapter), temperature)
    }

    fn log_probs_of(&self, hidden: &Tensor, head: &LmHead, temperature: f32) -> Tensor {
        let (rows, targets) = (&self.rows, &self.targets);
        let scored = hidden.log_probs(head, rows, targets, &self.allowed, temperature);
        scored.log_probs
    }
}

impl Batch {
    /// Copies the batch to the device.
    pub fn on(&self, gpu: &Gpu) -> Packed {
        Packed {
            tokens: Tokens::new(gpu, &self.tree),
            rows: Indices::new(gpu, &self.rows),
            targets: Indices::new(gpu, &self.targets),
            allowed: self.allowed.clone(),
        }
    }

    /// Returns the largest distance of a token's ratio from 1, given the current log-probs of the pairs. NaN if one is NaN.
    pub(crate) fn ratio_error(&self, log_probs: &[f32]) -> f64 {
        let error = |token: &LossToken| {
            let now = f64::from(log_probs[token.pair as usize]);
            ((now - f64::from(token.old)).exp() - 1.0).abs()
        };
        self.tokens.iter().map(error).fold(0.0, larger_or_nan)
    }
}

/// Returns the number of positions that a model computes to sample these replies, with equal prefixes computed once. The last
/// token of a reply is not computed.
pub(crate) fn distinct_tokens(episodes: &[Episode]) -> u64 {
    let sampled = episodes.iter().flat_map(Episode::sampled);
    let computed = |reply: &Sampled| [&reply.prompt, &reply.ids[..reply.ids.len() - 1]].concat();
    let mut sequences: Vec<Vec<u32>> = sampled.map(computed).collect();
    // Of sorted sequences, each shares its longest prefix with the one before.
    sequences.sort_unstable();
    let (mut count, mut before) = (0, &[][..]);
    for sequence in &sequences {
        let shared = sequence.iter().zip(before).take_while(|(a, b)| a == b);
        count += sequence.len() - shared.count();
        before = sequence;
    }
    count as u64
}

/// Counts what the loss over these episodes is a mean over: tokens, turns or episodes.
pub fn count<'a>(episodes: impl Iterator<Item = &'a Episode>, aggregation: Aggregation) -> f64 {
    let count = |episode: &Episode| match aggregation {
        Aggregation::Token => episode.reply_tokens(),
        Aggregation::Turn => episode.turns.len(),
        Aggregation::Episode => 1,
    };
    episodes.map(count).sum::<usize>() as f64
}

/// Packs the turns of the selected episodes into batches of at most `limit` tokens. A turn that is longer has a batch of its
/// own. `over` divides the loss: if it is the [`count`] of these episodes, the weights of all tokens add up to 1.
///
/// # Panics
/// If a turn was not sampled from a model.
pub fn pack(
    episodes: &[SelectedEpisode<'_>],
    aggregation: Aggregation,
    over: f64,
    limit: usize,
) -> Vec<Batch> {
    // Turns with equal prompts become neighbours, so that a batch merges them. The sort is stable.
    let mut turns: Vec<(usize, usize)> = (0..episodes.len())
        .flat_map(|e| (0..episodes[e].episode.turns.len()).map(move |t| (e, t)))
        .collect();
    let reply = |(e, t): (usize, usize)| -> &Sampled {
        let sampled = episodes[e].episode.turns[t].sampled.as_ref();
        sampled.expect("a turn to train on was sampled from a model")
    };
    let prompt = |turn| -> &Arc<[u32]> { &reply(turn).prompt };
    turns.sort_by(|a, b| prompt(*a).cmp(prompt(*b)));

    let mut batches = Vec::new();
    let mut rest = &turns[..];
    while !rest.is_empty() {
        let mut tree = TokenTree::default();
        let mut leaves = Vec::new();
        for &turn in rest {
            let Sampled { prompt, ids, .. } = reply(turn);
            if !leaves.is_empty() && tree.len() + prompt.len() + ids.len() > limit {
                break;
            }
            leaves.push(tree.insert(&[&prompt[..], &ids[..ids.len() - 1]].concat()));
        }
        let (now, later) = rest.split_at(leaves.len());
        rest = later;

        let tree = tree.pack();
        let mut batch = Batch {
            rows: Vec::new(),
            targets: Vec::new(),
            allowed: Vec::new(),
            tokens: Vec::new(),
            turns: Vec::new(),
            tree,
        };
        let mut pairs: HashMap<(u32, u32, Arc<[u32]>), u32> = HashMap::new();
        for (&(e, t), leaf) in now.iter().zip(leaves) {
            let SelectedEpisode {
                episode,
                advantages,
                entropy_weight,
            } = episodes[e];
            let sampled = reply((e, t));
            let tokens = sampled.ids.len() as f64;
            let share = match aggregation {
                Aggregation::Token => 1.0 / over,
                Aggregation::Turn => 1.0 / (over * tokens),
                Aggregation::Episode => 1.0 / (over * episode.turns.len() as f64 * tokens),
            };
            let path = batch.tree.path(leaf);
            let rows = &path[sampled.prompt.len() - 1..];
            let drawn = sampled.log_probs.iter().zip(&sampled.entropies);
            let scored = rows.iter().zip(&sampled.ids).zip(drawn).enumerate();
            for (place, ((&row, &target), (&old, &entropy))) in scored {
                let allowed = sampled.allowed.as_ref();
                let set = allowed.map(|replies| replies.after(&sampled.ids[..place]));
                let set = set.unwrap_or_default();
                let pair = *pairs.entry((row, target, set.clone())).or_insert_with(|| {
                    batch.rows.push(row);
                    batch.targets.push(target);
                    batch.allowed.push(set);
                    batch.rows.len() as u32 - 1
                });
                batch.tokens.push(LossToken {
                    pair,
                    advantage: (advantages[t] + bonus(entropy_weight, old, entropy)) as f32,
                    weight: share as f32,
                    old,
                    reference: old,
                });
                batch.turns.push((e, t));
            }
        }
        batches.push(batch);
    }
    batches
}

/// Packs these episodes, with the advantage 1 for each turn, into batches whose losses add up to the mean over all tokens.
///
/// # Panics
/// If a turn was not sampled from a model.
pub fn pack_all<'a>(episodes: impl Iterator<Item = &'a Episode>, limit: usize) -> Vec<Batch> {
    let episodes: Vec<&Episode> = episodes.collect();
    let longest = episodes.iter().map(|episode| episode.turns.len()).max();
    let advantages = vec![1.0; longest.unwrap_or(0)];
    let one = |episode: &&'a Episode| SelectedEpisode {
        episode,
        advantages: &advantages,
        entropy_weight: 0.0,
    };
    let all: Vec<SelectedEpisode<'_>> = episodes.iter().map(one).collect();
    let over = count(episodes.iter().copied(), Aggregation::Token);
    pack(&all, Aggregation::Token, over, limit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{BatchMetrics, UpdateMetrics};
    use lapwing_model::AllowedReplies;
    use lapwing_play::Turn;
    use proptest::prelude::*;

    fn episode(steps: &[(Vec<u32>, Vec<u32>)]) -> Episode {
        let turns = steps
            .iter()
            .map(|(prompt, reply)| Turn {
                sampled: Some(Sampled {
                    prompt: prompt.as_slice().into(),
                    ids: reply.clone(),
                    // Unique to the prefix, so that mixed-up tokens show.
                    log_probs: (0..reply.len())
                        .map(|k| -((prompt.len() * 100 + k) as f32))
                        .collect(),
                    entropies: vec![0.0; reply.len()],
                    cut: false,
                    allowed: None,
                }),
                ..Turn::default()
            })
            .collect();
        Episode {
            turns,
            ..Episode::default()
        }
    }

    /// Selects all episodes. The advantage of a turn is its index.
    fn all(played: &[Episode]) -> Vec<SelectedEpisode<'_>> {
        const NUMBERS: &[f64] = &[0.0, 1.0, 2.0, 3.0];
        let one = |episode| SelectedEpisode {
            episode,
            advantages: NUMBERS,
            entropy_weight: 0.0,
        };
        played.iter().map(one).collect()
    }

    fn episodes() -> impl Strategy<Value = Vec<Vec<(Vec<u32>, Vec<u32>)>>> {
        let ids = |most| proptest::collection::vec(0u32..3, 1..most);
        proptest::collection::vec(proptest::collection::vec((ids(6), ids(4)), 1..4), 1..6)
    }

    #[test]
    fn equal_tokens_of_different_sets_are_different_pairs() {
        let replies = [vec![vec![2], vec![3]], vec![vec![2], vec![2, 1]], vec![]];
        let mut played = vec![episode(&[(vec![1], vec![2])]); 4];
        for (episode, replies) in played.iter_mut().zip(&replies) {
            let allowed = (!replies.is_empty()).then(|| AllowedReplies::new(replies, &[9]));
            episode.turns[0].sampled.as_mut().unwrap().allowed = allowed.map(Arc::new);
        }
        let batch = &pack_all(played.iter(), 99)[0];
        let pairs: Vec<u32> = batch.tokens.iter().map(|token| token.pair).collect();
        assert_eq!(pairs, [0, 1, 2, 2]);
        let sets: Vec<&[u32]> = batch.allowed.iter().map(|set| &**set).collect();
        assert_eq!(sets, [&[2, 3][..], &[2], &[]]);
    }

    #[test]
    fn ratio_errors_are_the_largest_distance_from_one_or_nan() {
        let played = [episode(&[(vec![1], vec![2]), (vec![1, 2], vec![3])])];
        let batch = &pack_all(played.iter(), 99)[0];
        let error_after = |change: f32| {
            let mut log_probs = vec![0.0; batch.tokens.len()];
            for token in &batch.tokens {
                log_probs[token.pair as usize] = token.old;
            }
            log_probs[1] += change;
            batch.ratio_error(&log_probs)
        };
        assert_eq!(error_after(0.0), 0.0);
        assert!((error_after(2.0_f32.ln()) - 1.0).abs() < 1e-4);
        assert!((error_after(-(2.0_f32.ln())) - 0.5).abs() < 1e-4);
        for errors in [[f64::NAN, 0.5], [0.5, f64::NAN]] {
            let mut learned = UpdateMetrics::default();
            for ratio_error in errors {
                let batch = BatchMetrics {
                    ratio_error,
                    ..BatchMetrics::default()
                };
                learned.add(&batch, 0.5);
            }
            assert!(learned.first_ratio_error.is_nan());
        }
        assert!(error_after(f32::NAN).is_nan());
    }

    #[test]
    fn effective_episodes_count_equal_weights_in_full() {
        let group = |advantages: &[f64], selected: &[usize]| Group {
            advantages: advantages
                .iter()
                .map(|a| EpisodeAdvantage::new(vec![*a]))
                .collect(),
            selected: selected.to_vec(),
            ..Group::default()
        };
        let all = [0, 1, 2];
        assert_eq!(
            effective_episodes(&[group(&[1.0, -1.0, 1.0], &all)]),
            Some(3.0)
        );
        // One weighs three times as much: 25 / 11.
        assert_eq!(
            effective_episodes(&[group(&[3.0, -1.0, 1.0], &all)]),
            Some(25.0 / 11.0)
        );
        // Only those that are selected count, over all groups.
        assert_eq!(
            effective_episodes(&[group(&[2.0, -1.0], &[0]), group(&[2.0, 5.0], &[0])]),
            Some(2.0)
        );
        assert_eq!(effective_episodes(&[group(&[1.0], &[])]), None);
    }

    /// Good and bad turns add up to 0, but the episode still has a weight.
    #[test]
    fn turns_that_cancel_out_have_a_weight() {
        let credit = EpisodeAdvantage::new(vec![3.0, -3.0]);
        assert_eq!((credit.mean, credit.weight()), (0.0, 3.0));
        let even = EpisodeAdvantage::new(vec![-0.1; 3]);
        assert_eq!((even.mean, even.weight()), (-0.1, 0.1));
    }

    proptest! {
        /// Each sampled token appears once, after its own prefix, for every limit.
        #[test]
        fn every_sampled_token_is_in_the_loss_once(episodes in episodes(), limit in 1usize..40) {
            let played: Vec<_> = episodes.iter().map(|e| episode(e)).collect();
            let chosen = all(&played);
            let mut got = Vec::new();
            for batch in pack(&chosen, Aggregation::Token, 1.0, limit) {
                let tree = &batch.tree;
                for token in &batch.tokens {
                    let row = batch.rows[token.pair as usize];
                    // The ids visible to the row, in order, then the target.
                    let mut path: Vec<u32> = (0..=row)
                        .filter(|j| row < tree.visible_until[*j as usize])
                        .map(|j| tree.ids[j as usize])
                        .collect();
                    path.push(batch.targets[token.pair as usize]);
                    got.push((path, token.old as i64, token.advantage as usize));
                }
                let mut pairs: Vec<_> = batch.rows.iter().zip(&batch.targets).collect();
                pairs.sort();
                pairs.dedup();
                prop_assert_eq!(pairs.len(), batch.rows.len(), "pairs are distinct");
            }
            let mut wanted = Vec::new();
            for (turn, reply) in played.iter().flat_map(|e| e.sampled().enumerate()) {
                for k in 0..reply.ids.len() {
                    let path = [&reply.prompt[..], &reply.ids[..=k]].concat();
                    wanted.push((path, reply.log_probs[k] as i64, turn));
                }
            }
            got.sort();
            wanted.sort();
            prop_assert_eq!(got, wanted);
        }

        #[test]
        fn weights_add_up_to_one(episodes in episodes(), limit in 1usize..40) {
            let played: Vec<_> = episodes.iter().map(|e| episode(e)).collect();
            let chosen = all(&played);
            for aggregation in [Aggregation::Token, Aggregation::Turn, Aggregation::Episode] {
                let over = count(played.iter(), aggregation);
                let sum: f64 = pack(&chosen, aggregation, over, limit)
                    .iter()
                    .flat_map(|batch| &batch.tokens)
                    .map(|token| f64::from(token.weight))
                    .sum();
                // Sixty weights, each rounded to f32.
                prop_assert!((sum - 1.0).abs() < 1e-5, "{}", sum);
            }
        }
    }
}
