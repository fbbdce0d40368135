//! A critic: a small network that learns, beside the policy, to tell what comes after a state.
//!
//! A state is the prompt of a turn: what is told of the game, with the history and in the wording of its episode. Its features
//! h are the policy's own hidden state (C) at the last token of the prompt, after the last norm, from which the policy draws
//! the first token of its reply; [`Head`] makes a value of them.
//!
//! Nothing flows back into the trunk: it learns from the loss of the policy alone, as with any other credit, and the critic
//! cannot spoil an adapter of a few numbers. As h does not depend on the head, it is computed once a step, and the head can
//! learn from it many times.
//!
//! Over T turns of rewards r_t, with what [`credit`](crate::learn::credit) makes of them,
//!
//! ```text
//! A_t  = generalised advantage estimation with V_old                      (arXiv 1506.02438), not normalised
//! R_t  = A_t + V_old(s_t)                                                 what the critic learns
//! loss = mean over turns of 1/2 max((V - R)^2, (V_old + clamp(V - V_old, -clip, clip) - R)^2)
//! ```
//!
//! What comes after the last turn is worth 0 if the game is over. If the step limit ended the episode, the game would have
//! gone on: the state that the last turn led to is rendered as the prompt of one turn more, and has a value like any other.
//!
//! The critic values and learns from all turns of all episodes of a step, whatever the policy learns from: it is to tell what
//! a state is worth on average, and those that are chosen stand out.

use std::collections::BTreeMap;
use std::sync::Arc;

use lapwing_model::{Adapter, TokenTree, Tokens};
use lapwing_tensor::{AdamW, Indices, Tensor};

use crate::learn::credit::temporal_differences;
use crate::learn::group::Group;
use crate::learn::head::Head;
use crate::play::players::model::Policy;
use crate::play::{Episode, Seen};
use crate::record::metrics::CriticMetrics;
use crate::run::config::Config;
use crate::run::world::World;
use crate::{Error, Progress};

/// The states of the turns of a step, as the policy sees them.
pub struct States {
    /// the features of each distinct state: (N, C)
    hidden: Tensor,
    /// By group, episode and turn, and after the last turn: the row of the state. None after the end of a game.
    rows: Vec<Vec<Vec<Option<u32>>>>,
    /// positions that ran through the model
    pub tokens_computed: u64,
}

impl States {
    /// Runs the prompts of all turns of these groups through the policy as it stands. Equal prompts are computed once, and so
    /// are equal beginnings within the `limit` of tokens that go through the model together.
    ///
    /// # Errors
    /// If a prompt cannot be rendered, or the device fails.
    ///
    /// # Panics
    /// If a turn was not sampled from a model.
    pub fn of(
        groups: &[Group],
        worlds: &mut [World],
        policy: &Policy,
        limit: usize,
        progress: &dyn Progress,
    ) -> Result<States, Error> {
        // By prompt, in the order of the ids: those that begin alike stand together.
        let mut places: BTreeMap<Arc<[u32]>, u32> = BTreeMap::new();
        let mut prompts = Vec::with_capacity(groups.len());
        for group in groups {
            let of = |episode| prompts_of(episode, &mut worlds[group.world]);
            let episodes: Vec<_> = group.episodes.iter().map(of).collect::<Result<_, _>>()?;
            for prompt in episodes.iter().flatten().flatten() {
                places.insert(prompt.clone(), 0);
            }
            prompts.push(episodes);
        }
        for (row, place) in places.values_mut().enumerate() {
            *place = row as u32;
        }
        let row = |prompt: &Option<Arc<[u32]>>| prompt.as_ref().map(|prompt| places[prompt]);
        let rows = |episode: &Vec<_>| episode.iter().map(row).collect();
        let rows = prompts.iter().map(|group| group.iter().map(rows).collect());

        let model = policy.model.without_gradients();
        let adapter = policy.adapter.as_ref().map(Adapter::without_gradients);
        let mut states = States {
            hidden: Tensor::zeros(model.gpu(), &[places.len(), model.config().width]),
            rows: rows.collect(),
            tokens_computed: 0,
        };
        let prompts: Vec<&Arc<[u32]>> = places.keys().collect();
        progress.phase("values", prompts.len(), "states");
        let mut done = 0;
        while done < prompts.len() {
            let (mut tree, mut leaves) = (TokenTree::new(), Vec::new());
            for prompt in &prompts[done..] {
                if !leaves.is_empty() && tree.len() + prompt.len() > limit {
                    break;
                }
                leaves.push(tree.insert(prompt));
            }
            let tree = tree.pack();
            let last: Vec<u32> = leaves.iter().map(|leaf| tree.last(*leaf)).collect();
            let these: Vec<u32> = (done..done + last.len()).map(|row| row as u32).collect();
            let hidden = model.forward(&Tokens::new(model.gpu(), &tree), adapter.as_ref());
            let hidden = hidden.gather_rows(&Indices::new(model.gpu(), &last));
            let these = Indices::new(model.gpu(), &these);
            states.hidden.write_rows(&these, &hidden);
            states.tokens_computed += tree.len() as u64;
            done += last.len();
            progress.done(done);
        }
        Ok(states)
    }
}

/// What was asked in each turn, and what would be asked after the last if the step limit ended the episode.
fn prompts_of(episode: &Episode, world: &mut World) -> Result<Vec<Option<Arc<[u32]>>>, Error> {
    let sampled = episode.turns.iter().map(|turn| turn.sampled.as_ref());
    let asked = sampled.map(|reply| reply.expect("a turn of a model").prompt.clone());
    let mut prompts: Vec<_> = asked.map(Some).collect();
    prompts.push(match episode.is_truncated() {
        true => Some(world.prompts.ids(&Seen::after(episode))?),
        false => None,
    });
    Ok(prompts)
}

/// By group and episode: what each state is worth, and what comes after the last turn; that is T + 1 numbers.
///
/// # Errors
/// If a value is no finite number, or the device fails.
pub fn values(critic: &Head, states: &States) -> Result<Vec<Vec<Vec<f64>>>, Error> {
    if critic.parameters.steps() == 0 {
        critic.settle(&states.hidden)?;
    }
    let values = critic.values(&states.hidden).to_vec()?;
    if !values.iter().all(|value| value.is_finite()) {
        return Err(Error::Critic);
    }
    let value = |row: &Option<u32>| row.map_or(0.0, |row| f64::from(values[row as usize]));
    let of = |episode: &Vec<_>| episode.iter().map(value).collect();
    let of_group = |group: &Vec<_>| group.iter().map(of).collect();
    Ok(states.rows.iter().map(of_group).collect())
}

/// Learns from all turns of these groups, whose states and values these are. Tells how it did before.
pub fn learn(
    critic: &mut Head,
    groups: &[Group],
    states: &States,
    config: &Config,
) -> CriticMetrics {
    let (mut rows, mut old, mut targets) = (Vec::new(), Vec::new(), Vec::new());
    for (group, states) in groups.iter().zip(&states.rows) {
        for ((episode, values), states) in group.episodes.iter().zip(&group.values).zip(states) {
            let advantages = temporal_differences(&config.credit, episode, values);
            rows.extend(states.iter().flatten().take(advantages.len()));
            old.extend(&values[..advantages.len()]);
            targets.extend(advantages.iter().zip(values).map(|(a, value)| a + value));
        }
    }
    let gpu = states.hidden.gpu();
    let column = |numbers: &[f64]| {
        let numbers: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
        Tensor::from_slice(gpu, &numbers, &[numbers.len(), 1])
    };
    let metrics = CriticMetrics::of(&old, &targets);
    let (rows, old, targets) = (Indices::new(gpu, &rows), column(&old), column(&targets));
    for _ in 0..config.critic.passes {
        let values = critic.values(&states.hidden).gather_rows(&rows);
        let loss = value_loss(&values, &old, &targets, config.critic.clip as f32);
        critic.parameters.accumulate(&loss.backward());
        critic.parameters.step(AdamW {
            lr: config.critic.lr,
            beta1: config.train.betas[0],
            beta2: config.train.betas[1],
            eps: 1e-8,
            weight_decay: 0.0,
            max_norm: config.train.max_grad_norm,
        });
    }
    metrics
}
/// The loss at the head of this file, of values, old values and targets (N, 1).
fn value_loss(values: &Tensor, old: &Tensor, targets: &Tensor, clip: f32) -> Tensor {
    let near = values.sub(old).clamp(-clip, clip).add(old);
    let miss = |values: &Tensor| values.sub(targets).square();
    miss(values).max(&miss(&near)).mean().mul_scalar(0.5)
}

#[cfg(test)]
mod tests;
