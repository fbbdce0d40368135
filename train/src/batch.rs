//! From chosen episodes to what the model computes: the packed token tree, and what each token contributes to the loss.

use std::collections::HashMap;
use std::sync::Arc;

use lapwing_model::{PackedTree, TokenTree};
use lapwing_tensor::LossToken;

use crate::config::Aggregation;
use crate::rollout::Episode;

/// An episode to learn from.
#[derive(Debug, Clone, Copy)]
pub struct Chosen<'a> {
    /// what happened
    pub episode: &'a Episode,
    /// A_j: how its return stands out in its group
    pub advantage: f64,
    /// 1, or the inverse of the chance that it was drawn
    pub importance: f64,
}

/// A part of an update that goes through the model at once.
pub struct Batch {
    /// Prompts and replies, equal beginnings merged. The last token of a reply is left out: nothing is asked of it.
    pub tree: PackedTree,
    /// for each pair: the packed position whose hidden state predicts the token
    pub rows: Vec<u32>,
    /// for each pair: the token that was sampled there
    pub targets: Vec<u32>,
    /// Every sampled token. Tokens that were sampled in equal circumstances share a pair. `reference` is still to be
    /// filled in.
    pub tokens: Vec<LossToken>,
}

/// Packs the steps of the chosen episodes into batches of at most `limit` tokens of the tree (one step more if it alone
/// is longer). The weights of all tokens of all batches add up to one, or to what the importances make of it.
pub fn pack(chosen: &[Chosen<'_>], aggregation: Aggregation, limit: usize) -> Vec<Batch> {
    let weights = weights(chosen, aggregation);
    // Steps that share a prompt stand together, so that a batch merges them. The sort is stable.
    let mut steps: Vec<(usize, usize)> = (0..chosen.len())
        .flat_map(|e| (0..chosen[e].episode.steps.len()).map(move |s| (e, s)))
        .collect();
    let prompt = |(e, s): (usize, usize)| -> &Arc<[u32]> { &chosen[e].episode.steps[s].prompt };
    steps.sort_by(|a, b| prompt(*a).cmp(prompt(*b)));

    let mut batches = Vec::new();
    let mut rest = &steps[..];
    while !rest.is_empty() {
        let mut tree = TokenTree::new();
        let mut leaves = Vec::new();
        for &(e, s) in rest {
            let step = &chosen[e].episode.steps[s];
            if !leaves.is_empty() && tree.len() + step.prompt.len() + step.reply.len() > limit {
                break;
            }
            let seen: Vec<u32> = [&step.prompt[..], &step.reply[..step.reply.len() - 1]].concat();
            leaves.push(tree.insert(&seen));
        }
        let (now, later) = rest.split_at(leaves.len());
        rest = later;

        let tree = tree.pack();
        let mut batch = Batch {
            rows: Vec::new(),
            targets: Vec::new(),
            tokens: Vec::new(),
            tree,
        };
        let mut pairs: HashMap<(u32, u32), u32> = HashMap::new();
        for (&(e, s), leaf) in now.iter().zip(leaves) {
            let step = &chosen[e].episode.steps[s];
            let path = batch.tree.path(leaf);
            let rows = &path[step.prompt.len() - 1..];
            for ((&row, &target), &old) in rows.iter().zip(&step.reply).zip(&step.log_probs) {
                let pair = *pairs.entry((row, target)).or_insert_with(|| {
                    batch.rows.push(row);
                    batch.targets.push(target);
                    batch.rows.len() as u32 - 1
                });
                let weight = (weights[e][s] * chosen[e].importance) as f32;
                let advantage = chosen[e].advantage as f32;
                batch.tokens.push(LossToken {
                    pair,
                    advantage,
                    weight,
                    old,
                    reference: 0.0,
                });
            }
        }
        batches.push(batch);
    }
    batches
}

/// The weight of each token of step s of episode e, before importance: what the loss is an average over.
fn weights(chosen: &[Chosen<'_>], aggregation: Aggregation) -> Vec<Vec<f64>> {
    let tokens: usize = chosen.iter().map(|c| c.episode.reply_tokens()).sum();
    let steps: usize = chosen.iter().map(|c| c.episode.steps.len()).sum();
    let weight = |episode: &Episode, reply: usize| match aggregation {
        Aggregation::Token => 1.0 / tokens as f64,
        Aggregation::Step => 1.0 / (steps * reply) as f64,
        Aggregation::Episode => 1.0 / (chosen.len() * episode.steps.len() * reply) as f64,
    };
    chosen
        .iter()
        .map(|c| {
            c.episode
                .steps
                .iter()
                .map(|step| weight(c.episode, step.reply.len()))
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::Step;
    use proptest::prelude::*;

    fn episode(steps: &[(Vec<u32>, Vec<u32>)]) -> Episode {
        let steps = steps
            .iter()
            .map(|(prompt, reply)| Step {
                observation: String::new(),
                prompt: prompt.as_slice().into(),
                reply: reply.clone(),
                // stands for the circumstances, so that a mix-up of tokens shows
                log_probs: (0..reply.len())
                    .map(|k| -((prompt.len() * 100 + k) as f32))
                    .collect(),
                entropies: vec![0.0; reply.len()],
                action: None,
                reward: 0.0,
                shaping: 0.0,
            })
            .collect();
        Episode {
            steps,
            ..Episode::default()
        }
    }

    fn episodes() -> impl Strategy<Value = Vec<Vec<(Vec<u32>, Vec<u32>)>>> {
        let ids = |most| proptest::collection::vec(0u32..3, 1..most);
        proptest::collection::vec(proptest::collection::vec((ids(6), ids(4)), 1..4), 1..6)
    }

    proptest! {
        /// However the steps are cut into batches, each sampled token appears once, under its own path.
        #[test]
        fn every_sampled_token_is_in_the_loss_once(episodes in episodes(), limit in 1usize..40) {
            let played: Vec<_> = episodes.iter().map(|e| episode(e)).collect();
            let chosen: Vec<_> =
                played.iter().map(|episode| Chosen { episode, advantage: 1.0, importance: 1.0 }).collect();
            let mut got = Vec::new();
            for batch in pack(&chosen, Aggregation::Token, limit) {
                let tree = &batch.tree;
                for token in &batch.tokens {
                    let row = batch.rows[token.pair as usize];
                    // the ids that the row sees, in order, then the target
                    let mut path: Vec<u32> = (0..=row)
                        .filter(|j| row < tree.visible_until[*j as usize])
                        .map(|j| tree.ids[j as usize])
                        .collect();
                    path.push(batch.targets[token.pair as usize]);
                    got.push((path, token.old as i64));
                }
                let mut pairs: Vec<_> = batch.rows.iter().zip(&batch.targets).collect();
                pairs.sort();
                pairs.dedup();
                prop_assert_eq!(pairs.len(), batch.rows.len(), "pairs are distinct");
            }
            let mut wanted = Vec::new();
            for step in played.iter().flat_map(|e| &e.steps) {
                for k in 0..step.reply.len() {
                    let path = [&step.prompt[..], &step.reply[..=k]].concat();
                    wanted.push((path, step.log_probs[k] as i64));
                }
            }
            got.sort();
            wanted.sort();
            prop_assert_eq!(got, wanted);
        }

        #[test]
        fn weights_add_up_to_one(episodes in episodes(), limit in 1usize..40) {
            let played: Vec<_> = episodes.iter().map(|e| episode(e)).collect();
            let chosen: Vec<_> =
                played.iter().map(|episode| Chosen { episode, advantage: 1.0, importance: 1.0 }).collect();
            for aggregation in [Aggregation::Token, Aggregation::Step, Aggregation::Episode] {
                let sum: f64 = pack(&chosen, aggregation, limit)
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
