//! From chosen episodes to what the model computes: the packed token tree, and what each token contributes to the loss.

use std::collections::HashMap;
use std::sync::Arc;

use lapwing_model::{Adapter, Model, PackedTree, TokenTree, Tokens};
use lapwing_tensor::{Gpu, Indices, Tensor, rl::LossToken};

use crate::learn::entropy::bonus;
use crate::play::{Episode, Sampled};
use crate::run::config::Aggregation;

/// An episode to learn from.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// what happened
    pub episode: &'a Episode,
    /// the advantage of each of its turns
    pub advantages: &'a [f64],
    /// 1, or the inverse of the chance that it was drawn
    pub importance: f64,
    /// the weight of the entropy ([`entropy`](crate::learn::entropy)); 0 within the band
    pub entropy_weight: f64,
}

/// A part of an update that goes through the model at once.
pub struct Batch {
    /// Prompts and replies, equal beginnings merged. The last token of a reply is left out: nothing is asked of it.
    pub tree: PackedTree,
    /// for each pair: the packed position whose hidden state predicts the token
    pub rows: Vec<u32>,
    /// for each pair: the token that was sampled there
    pub targets: Vec<u32>,
    /// Every sampled token. Tokens that were sampled in equal circumstances share a pair. `reference` is `old` until it is
    /// filled in, which is as if there were no reference.
    pub tokens: Vec<LossToken>,
    /// for each token: the place of its episode among the chosen ones, and its turn
    pub turns: Vec<(usize, usize)>,
}

/// A batch on the device.
pub struct Packed {
    tokens: Tokens,
    rows: Indices,
    targets: Indices,
}

impl Packed {
    /// The log-prob of each pair's target where the replies are sampled at this temperature; tracked if the model or the
    /// adapter is.
    pub fn log_probs(&self, model: &Model, adapter: Option<&Adapter>, temperature: f32) -> Tensor {
        let hidden = model.forward(&self.tokens, adapter);
        hidden
            .log_probs(&model.head(adapter), &self.rows, &self.targets, temperature)
            .log_probs
    }
}

impl Batch {
    /// Copies it to the device.
    pub fn on(&self, gpu: &Gpu) -> Packed {
        Packed {
            tokens: Tokens::new(gpu, &self.tree),
            rows: Indices::new(gpu, &self.rows),
            targets: Indices::new(gpu, &self.targets),
        }
    }

    /// How far from 1 the ratio of one of its tokens is at most, given the log-probs of the pairs as they are now.
    pub fn ratio_error(&self, log_probs: &[f32]) -> f64 {
        let error = |token: &LossToken| {
            let now = f64::from(log_probs[token.pair as usize]);
            ((now - f64::from(token.old)).exp() - 1.0).abs()
        };
        // Not by f64::max, which passes over what is not a number.
        let largest = |a: f64, b: f64| if b > a || b.is_nan() { b } else { a };
        self.tokens.iter().map(error).fold(0.0, largest)
    }
}

/// What a loss over these episodes is an average over: their tokens, their turns or themselves.
pub fn count<'a>(episodes: impl Iterator<Item = &'a Episode>, aggregation: Aggregation) -> f64 {
    let count = |episode: &Episode| match aggregation {
        Aggregation::Token => episode.reply_tokens(),
        Aggregation::Turn => episode.turns.len(),
        Aggregation::Episode => 1,
    };
    episodes.map(count).sum::<usize>() as f64
}

/// Packs the turns of the chosen episodes into batches of at most `limit` tokens of the tree (one turn more if it alone
/// is longer). `over` is the [`count`] that the loss is an average over: if it is that of these episodes, the weights of
/// all tokens of all batches add up to one, or to what the importances make of it.
///
/// # Panics
/// If a turn was not sampled from a model.
pub fn pack(
    chosen: &[Chosen<'_>],
    aggregation: Aggregation,
    over: f64,
    limit: usize,
) -> Vec<Batch> {
    // Turns that share a prompt stand together, so that a batch merges them. The sort is stable.
    let mut turns: Vec<(usize, usize)> = (0..chosen.len())
        .flat_map(|e| (0..chosen[e].episode.turns.len()).map(move |t| (e, t)))
        .collect();
    let reply = |(e, t): (usize, usize)| -> &Sampled {
        let sampled = chosen[e].episode.turns[t].sampled.as_ref();
        sampled.expect("a turn that is learned from was sampled from a model")
    };
    let prompt = |turn| -> &Arc<[u32]> { &reply(turn).prompt };
    turns.sort_by(|a, b| prompt(*a).cmp(prompt(*b)));

    let mut batches = Vec::new();
    let mut rest = &turns[..];
    while !rest.is_empty() {
        let mut tree = TokenTree::new();
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
            tokens: Vec::new(),
            turns: Vec::new(),
            tree,
        };
        let mut pairs: HashMap<(u32, u32), u32> = HashMap::new();
        for (&(e, t), leaf) in now.iter().zip(leaves) {
            let Chosen {
                episode,
                advantages,
                importance,
                entropy_weight,
            } = chosen[e];
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
            for ((&row, &target), (&old, &entropy)) in rows.iter().zip(&sampled.ids).zip(drawn) {
                let pair = *pairs.entry((row, target)).or_insert_with(|| {
                    batch.rows.push(row);
                    batch.targets.push(target);
                    batch.rows.len() as u32 - 1
                });
                batch.tokens.push(LossToken {
                    pair,
                    advantage: (advantages[t] + bonus(entropy_weight, old, entropy)) as f32,
                    weight: (share * importance) as f32,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::play::Turn;
    use proptest::prelude::*;

    fn episode(steps: &[(Vec<u32>, Vec<u32>)]) -> Episode {
        let turns = steps
            .iter()
            .map(|(prompt, reply)| Turn {
                sampled: Some(Sampled {
                    prompt: prompt.as_slice().into(),
                    ids: reply.clone(),
                    // stands for the circumstances, so that a mix-up of tokens shows
                    log_probs: (0..reply.len())
                        .map(|k| -((prompt.len() * 100 + k) as f32))
                        .collect(),
                    entropies: vec![0.0; reply.len()],
                    cut: false,
                }),
                ..Turn::default()
            })
            .collect();
        Episode {
            turns,
            ..Episode::default()
        }
    }

    /// Turns whose advantage is their number.
    fn chosen(played: &[Episode]) -> Vec<Chosen<'_>> {
        const NUMBERS: &[f64] = &[0.0, 1.0, 2.0, 3.0];
        let one = |episode| Chosen {
            episode,
            advantages: NUMBERS,
            importance: 1.0,
            entropy_weight: 0.0,
        };
        played.iter().map(one).collect()
    }

    fn episodes() -> impl Strategy<Value = Vec<Vec<(Vec<u32>, Vec<u32>)>>> {
        let ids = |most| proptest::collection::vec(0u32..3, 1..most);
        proptest::collection::vec(proptest::collection::vec((ids(6), ids(4)), 1..4), 1..6)
    }

    proptest! {
        /// However the turns are cut into batches, each sampled token appears once, under its own path.
        #[test]
        fn every_sampled_token_is_in_the_loss_once(episodes in episodes(), limit in 1usize..40) {
            let played: Vec<_> = episodes.iter().map(|e| episode(e)).collect();
            let chosen = chosen(&played);
            let mut got = Vec::new();
            for batch in pack(&chosen, Aggregation::Token, 1.0, limit) {
                let tree = &batch.tree;
                for token in &batch.tokens {
                    let row = batch.rows[token.pair as usize];
                    // the ids that the row sees, in order, then the target
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
            let chosen = chosen(&played);
            for aggregation in [Aggregation::Token, Aggregation::Turn, Aggregation::Episode] {
                let over = count(played.iter(), aggregation);
                let sum: f64 = pack(&chosen, aggregation, over, limit)
                    .iter()
                    .flat_map(|batch| &batch.tokens)
                    .map(|token| f64::from(token.weight))
                    .sum();
                // sixty weights, each rounded to f32
                prop_assert!((sum - 1.0).abs() < 1e-5, "{}", sum);
            }
        }
    }
}
