//! DQN (Mnih et al. 2015) as it is done since Rainbow (Hessel et al. 2018), without its noise and its distributions: double
//! (van Hasselt et al. 2016), dueling (Wang et al. 2016), prioritised (Schaul et al. 2016), over several turns.
//!
//! A step, from top to bottom:
//!
//! ```text
//! play      value.episodes episodes, any action with a chance of epsilon, else argmax Q
//! keep      every turn as a span of dqn.n_step turns, the last ones shorter                         returns::n_step
//! learn     dqn.updates times: draw value.batch spans by their surprise                             replay
//!             a' = argmax_a Q(s', a)                    the network chooses
//!             y  = R + γ^n Q_target(s', a')             and the network of a while ago values
//!             δ  = y - Q(s, a)
//!             loss = Σ importance huber(δ) / batch      Huber (1964), delta 1
//!             Adam; |δ| is the new surprise; every dqn.target updates Q_target <- Q
//! ```
//!
//! Ours, not the paper's: of its DQN the network, the replay and the schedule are not published.

use std::sync::Arc;

use lapwing_tensor::Tensor;

use crate::LearnError;
use crate::metrics::ValueLearned;
use crate::value::learner::done;
use crate::value::learner::{Memory, NetworkLearner, NetworkOptions, Played};
use crate::value::network::Network;
use crate::value::player::{Path, best};
use crate::value::replay::Transition;
use crate::value::returns::n_step;
use crate::value::sight::Sight;
use lapwing_play::Episode;
use lapwing_play::Progress;

/// Of Adam; as in Rainbow. The usual 1e-8 takes steps of full length along gradients that hardly are.
const ADAM_EPS: f64 = 1.5e-4;
/// Errors beyond it count linearly.
const HUBER_DELTA: f32 = 1.0;

/// Keeps what was played, and learns. Tells what the updates brought on average, if any was made, and how many were dropped
/// because loss or gradient was no finite number.
///
/// # Errors
/// If the device fails.
pub fn learn(
    learner: &mut NetworkLearner,
    options: &NetworkOptions<'_>,
    step: usize,
    played: &Played,
    progress: &dyn Progress,
) -> Result<(Option<ValueLearned>, usize), LearnError> {
    let mut memory = learner.memory.take().expect("a run of DQN");
    let (gamma, n) = (options.value.gamma, options.dqn.n_step);
    for (episode, path) in played.episodes.iter().zip(&played.paths) {
        transitions(episode, path, n, gamma).for_each(|it| memory.replay.push(it));
    }
    let learned = update(learner, options, step, &mut memory, progress);
    learner.memory = Some(memory);
    learned
}

/// An episode as spans of up to `n` turns, one for each of its turns.
pub fn transitions<'a>(
    episode: &'a Episode,
    path: &'a Path,
    n: usize,
    gamma: f64,
) -> impl Iterator<Item = Transition> + 'a {
    let rewards: Vec<f64> = episode.turns.iter().map(|turn| turn.reward).collect();
    let spans = n_step(&rewards, n, gamma, path.goes_on());
    spans.into_iter().map(|span| Transition {
        sight: path.sights[span.start].clone(),
        action: episode.turns[span.start].action.expect("a network's word"),
        reward: span.reward as f32,
        next: span.next.map(|next| path.sights[next].clone()),
        discount: span.discount as f32,
    })
}

/// The updates of a step.
fn update(
    learner: &mut NetworkLearner,
    options: &NetworkOptions<'_>,
    step: usize,
    memory: &mut Memory,
    progress: &dyn Progress,
) -> Result<(Option<ValueLearned>, usize), LearnError> {
    let dqn = options.dqn;
    if memory.replay.len() < dqn.start.max(1) {
        return Ok((None, 0));
    }
    let (mut random, knobs, epsilon) = (
        options.random(step),
        options.knobs(step, ADAM_EPS),
        options.epsilon(step),
    );
    let beta = dqn.beta + (1.0 - dqn.beta) * done(step, dqn.beta_steps);
    let online = learner.network.without_gradients();
    let (mut made, mut dropped) = (Vec::new(), 0);
    progress.phase("update", dqn.updates, "updates");
    for update in 0..dqn.updates {
        let drawn = memory.replay.draw(options.value.batch, beta, &mut random);
        let transitions = drawn.places.iter().map(|place| memory.replay.get(*place));
        let transitions: Vec<Transition> = transitions.cloned().collect();
        let targets = targets(&online, &memory.target, &transitions)?;

        let q = q_of_actions(&learner.network, &transitions);
        let errors = Tensor::from_slice(q.gpu(), &targets, &[targets.len(), 1]).sub(&q);
        let importance: Vec<f32> = drawn.importance.iter().map(|w| *w as f32).collect();
        let importance = Tensor::from_slice(q.gpu(), &importance, &[importance.len(), 1]);
        let loss = errors.huber(HUBER_DELTA).mul(&importance).mean();
        learner.parameters.accumulate(&loss.backward());
        let norm = learner.parameters.step(knobs);

        let errors: Vec<f64> = errors.to_vec()?.into_iter().map(f64::from).collect();
        let (loss, norm) = (f64::from(loss.to_vec()?[0]), f64::from(norm.to_vec()?[0]));
        if loss.is_finite() && norm.is_finite() {
            made.push(ValueLearned::of(
                &targets, &errors, loss, norm, epsilon, knobs.lr,
            ));
            memory.replay.surprised(&drawn.places, &errors);
        } else {
            dropped += 1;
        }
        if learner.parameters.steps().is_multiple_of(dqn.target as u64) {
            memory.target.write_all(&online.values()?);
        }
        progress.done(update + 1);
    }
    Ok((ValueLearned::mean_of(&made), dropped))
}

/// y of each transition. Where nothing is to be expected next, it is what the turns brought.
pub fn targets(
    online: &Network,
    target: &Network,
    transitions: &[Transition],
) -> Result<Vec<f32>, LearnError> {
    // A state stands in where there is none, so that all fit a batch.
    let next = |it: &'_ Transition| -> Arc<Sight> { it.next.clone().unwrap_or(it.sight.clone()) };
    let next: Vec<Arc<Sight>> = transitions.iter().map(next).collect();
    let batch = online.batch(next.iter().map(|sight| &**sight));
    let (chosen, valued) = (online.forward(&batch), target.forward(&batch));
    let (chosen, valued) = (chosen.to_vec()?, valued.to_vec()?);
    let actions = chosen.len() / transitions.len();
    let each = transitions
        .iter()
        .zip(chosen.chunks(actions))
        .zip(valued.chunks(actions));
    let y = |((it, chosen), valued): ((&Transition, &[f32]), &[f32])| match it.next {
        Some(_) => it.reward + it.discount * valued[best(chosen)],
        None => it.reward,
    };
    Ok(each.map(y).collect())
}

/// Q(s, a), a column.
fn q_of_actions(network: &Network, transitions: &[Transition]) -> Tensor {
    let batch = network.batch(transitions.iter().map(|it| &*it.sight));
    network.forward_of(&batch, transitions.iter().map(|it| it.action))
}
