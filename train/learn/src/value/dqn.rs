//! DQN (Mnih et al. 2015) with the parts of Rainbow (Hessel et al. 2018) except noisy nets and distributions: double (van
//! Hasselt et al. 2016), dueling (Wang et al. 2016), prioritised (Schaul et al. 2016) and n-step.
//!
//! A step:
//!
//! ```text
//! play      value.episodes episodes, a random action with probability epsilon, else argmax Q
//! store     every turn as a span of dqn.n_step turns, the last ones shorter                         returns::n_step
//! update    dqn.updates times: draw value.batch spans by priority                                   replay
//!             a' = argmax_a Q(s', a)                    selected by the network
//!             y  = R + γ^n Q_target(s', a')             valued by the target network
//!             δ  = y - Q(s, a)
//!             loss = Σ importance huber(δ) / batch      Huber (1964), delta 1
//!             Adam; |δ| is the new priority; every dqn.target updates Q_target <- Q
//! ```
//!
//! The paper does not publish network, replay and schedule of its DQN.

use std::sync::Arc;

use lapwing_play::Episode;
use lapwing_play::Progress;
use lapwing_tensor::Tensor;

use crate::LearnError;
use crate::metrics::ValueUpdateMetrics;
use crate::value::encoder::EncodedState;
use crate::value::learner::{DqnMemory, NetworkLearner, NetworkOptions, NetworkRollout, completed};
use crate::value::network::Network;
use crate::value::player::{Trajectory, argmax};
use crate::value::replay::Transition;
use crate::value::returns::n_step;

/// As in Rainbow. With the usual 1e-8, Adam takes full steps along tiny gradients.
const ADAM_EPS: f64 = 1.5e-4;
/// Larger errors count linearly.
const HUBER_DELTA: f32 = 1.0;

/// Stores the rollout and makes the updates of a step. Returns their mean (`None` without updates), and how many were dropped
/// because their loss or gradient was not finite.
pub(crate) fn train(
    learner: &mut NetworkLearner,
    options: &NetworkOptions<'_>,
    step: usize,
    played: &NetworkRollout,
    progress: &dyn Progress,
) -> Result<(Option<ValueUpdateMetrics>, usize), LearnError> {
    let mut memory = learner.memory.take().expect("a run of DQN");
    let (gamma, n) = (options.value.gamma, options.dqn.n_step);
    for (episode, trajectory) in played.episodes.iter().zip(&played.trajectories) {
        transitions(episode, trajectory, n, gamma).for_each(|it| memory.replay.push(it));
    }
    let trained = update(learner, options, step, &mut memory, progress);
    learner.memory = Some(memory);
    trained
}

/// Returns a transition for each turn of an episode.
pub(crate) fn transitions<'a>(
    episode: &'a Episode,
    trajectory: &'a Trajectory,
    n: usize,
    gamma: f64,
) -> impl Iterator<Item = Transition> + 'a {
    let rewards: Vec<f64> = episode.turns.iter().map(|turn| turn.reward).collect();
    let spans = n_step(&rewards, n, gamma, trajectory.bootstraps);
    spans.into_iter().map(|span| Transition {
        state: trajectory.states[span.start].clone(),
        action: episode.turns[span.start]
            .action
            .expect("a network's action"),
        reward: span.reward as f32,
        next: span.next.map(|next| trajectory.states[next].clone()),
        discount: span.discount as f32,
    })
}

/// The updates of a step.
fn update(
    learner: &mut NetworkLearner,
    options: &NetworkOptions<'_>,
    step: usize,
    memory: &mut DqnMemory,
    progress: &dyn Progress,
) -> Result<(Option<ValueUpdateMetrics>, usize), LearnError> {
    let dqn = options.dqn;
    if memory.replay.len() < dqn.start.max(1) {
        return Ok((None, 0));
    }
    let (mut random, optimiser) = (options.random(step), options.optimiser(step, ADAM_EPS));
    let beta = dqn.beta + (1.0 - dqn.beta) * completed(step, dqn.beta_steps);
    let online = learner.network.without_gradients();
    let (mut made, mut dropped) = (Vec::new(), 0);
    progress.phase("update", dqn.updates, "updates");
    for update in 0..dqn.updates {
        let drawn = memory.replay.draw(options.value.batch, beta, &mut random);
        let transitions = drawn.indices.iter().map(|index| memory.replay.get(*index));
        let transitions: Vec<Transition> = transitions.cloned().collect();
        let targets = targets(&online, &memory.target, &transitions)?;

        let network = &learner.network;
        let batch = network.batch(transitions.iter().map(|it| &*it.state));
        let q = network.forward_of(&batch, transitions.iter().map(|it| it.action));
        let errors = Tensor::from_slice(q.gpu(), &targets, &[targets.len(), 1]).sub(&q);
        let importance: Vec<f32> = drawn.importance.iter().map(|w| *w as f32).collect();
        let importance = Tensor::from_slice(q.gpu(), &importance, &[importance.len(), 1]);
        let loss = errors.huber(HUBER_DELTA).mul(&importance).mean();
        match learner.update(&loss, &errors, &targets, optimiser)? {
            Some((metrics, errors)) => {
                made.push(metrics);
                memory.replay.reprioritise(&drawn.indices, &errors);
            }
            None => dropped += 1,
        }
        if learner.parameters.steps().is_multiple_of(dqn.target as u64) {
            memory.target.write_all(&online.values()?);
        }
        progress.done(update + 1);
    }
    let mean = ValueUpdateMetrics::mean_of(&made, options.epsilon(step));
    Ok((mean, dropped))
}

/// Computes y of each transition. For a terminal state it is the sum of the rewards.
pub(crate) fn targets(
    online: &Network,
    target: &Network,
    transitions: &[Transition],
) -> Result<Vec<f32>, LearnError> {
    // Terminal transitions use their own state as a placeholder, so that the batch is whole.
    let next =
        |it: &'_ Transition| -> Arc<EncodedState> { it.next.clone().unwrap_or(it.state.clone()) };
    let next: Vec<Arc<EncodedState>> = transitions.iter().map(next).collect();
    let batch = online.batch(next.iter().map(|state| &**state));
    let (selecting, valued) = (online.forward(&batch), target.forward(&batch));
    let (selecting, valued) = (selecting.to_vec()?, valued.to_vec()?);
    let actions = selecting.len() / transitions.len();
    let each = transitions
        .iter()
        .zip(selecting.chunks(actions))
        .zip(valued.chunks(actions));
    let y = |((it, selecting), valued): ((&Transition, &[f32]), &[f32])| match it.next {
        Some(_) => it.reward + it.discount * valued[argmax(selecting)],
        None => it.reward,
    };
    Ok(each.map(y).collect())
}
