//! PQN (Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning"): Q-learning on the step's episodes of many
//! environments. Layer normalisation stabilises it, so that it needs no replay and no target network.
//!
//! A step:
//!
//! ```text
//! play      value.episodes episodes, a random action with probability epsilon, else argmax Q
//! target    y_t = r_t + γ (λ y_{t+1} + (1 - λ) max_a Q(s_{t+1}, a)), from the end of each episode   returns::q_lambda
//! update    pqn.passes times over all turns in a new order, value.batch of them at once:
//!             loss = mean of (Q(s, a) - y)² / 2; Adam
//! ```
//!
//! Two differences from the original: episodes are played to their end instead of being continued in the next step, so that a
//! step depends on the network only and a resumed run is identical; and the optimiser is Adam instead of RAdam.

use lapwing_play::Progress;
use lapwing_tensor::Tensor;

use crate::LearnError;
use crate::metrics::ValueUpdateMetrics;
use crate::value::learner::{NetworkLearner, NetworkOptions, NetworkRollout};
use crate::value::player::Trajectory;
use crate::value::returns::q_lambda;

const ADAM_EPS: f64 = 1e-8;

/// Makes the updates of a step. Returns their mean, and how many were dropped because their loss or gradient was not finite.
pub(crate) fn train(
    learner: &mut NetworkLearner,
    options: &NetworkOptions<'_>,
    step: usize,
    played: &mut NetworkRollout,
    progress: &dyn Progress,
) -> Result<(Option<ValueUpdateMetrics>, usize), LearnError> {
    value_truncated(learner, &mut played.trajectories)?;
    let mut turns = Vec::new();
    for (episode, trajectory) in played.episodes.iter().zip(&played.trajectories) {
        let rewards: Vec<f64> = episode.turns.iter().map(|turn| turn.reward).collect();
        let (gamma, lambda) = (options.value.gamma, options.pqn.lambda);
        let targets = q_lambda(&rewards, &trajectory.values, gamma, lambda);
        let states = trajectory.states.iter().zip(targets);
        turns.extend(episode.turns.iter().zip(states).map(|(turn, (state, y))| {
            let action = turn.action.expect("a network's action");
            (state, action, y as f32)
        }));
    }

    let (mut random, optimiser) = (options.random(step), options.optimiser(step, ADAM_EPS));
    let passes = options.pqn.passes;
    // Of nearly equal size: a small last batch would count as much as a whole one.
    let batches = turns.len().div_ceil(options.value.batch);
    let size = turns.len().div_ceil(batches);
    let mut order: Vec<usize> = (0..turns.len()).collect();
    let (mut made, mut dropped) = (Vec::new(), 0);
    progress.phase("update", passes * turns.len(), "turns");
    for pass in 0..passes {
        for last in (1..order.len()).rev() {
            order.swap(last, (random.uniform() * (last + 1) as f64) as usize);
        }
        for (number, part) in order.chunks(size).enumerate() {
            let states = part.iter().map(|turn| &**turns[*turn].0);
            let actions = part.iter().map(|turn| turns[*turn].1);
            let targets: Vec<f32> = part.iter().map(|turn| turns[*turn].2).collect();
            let batch = learner.network.batch(states);
            let q = learner.network.forward_of(&batch, actions);
            let errors = Tensor::from_slice(q.gpu(), &targets, &[targets.len(), 1]).sub(&q);
            let loss = errors.square().mean().mul_scalar(0.5);
            match learner.update(&loss, &errors, &targets, optimiser)? {
                Some((metrics, _)) => made.push(metrics),
                None => dropped += 1,
            }
            progress.done(pass * turns.len() + number * size + part.len());
        }
    }
    let mean = ValueUpdateMetrics::mean_of(&made, options.epsilon(step));
    Ok((mean, dropped))
}

/// Appends the value of the last state to the values of each truncated episode.
fn value_truncated(
    learner: &NetworkLearner,
    trajectories: &mut [Trajectory],
) -> Result<(), LearnError> {
    let mut stopped: Vec<&mut Trajectory> = trajectories
        .iter_mut()
        .filter(|trajectory| trajectory.bootstraps)
        .collect();
    if stopped.is_empty() {
        return Ok(());
    }
    let network = learner.network.without_gradients();
    let last = stopped.iter().map(|trajectory| {
        &**trajectory
            .states
            .last()
            .expect("a truncated episode has states")
    });
    let q = network.forward(&network.batch(last)).to_vec()?;
    let actions = q.len() / stopped.len();
    for (trajectory, q) in stopped.iter_mut().zip(q.chunks(actions)) {
        let best = q.iter().copied().fold(f32::MIN, f32::max);
        trajectory.values.push(f64::from(best));
    }
    Ok(())
}
