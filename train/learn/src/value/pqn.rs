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

use std::sync::Arc;

use lapwing_tensor::Tensor;

use crate::metrics::ValueLearned;
use crate::value::encoder::EncodedState;
use crate::value::learner::{NetworkLearner, NetworkOptions, NetworkRollout};
use crate::value::player::Trajectory;
use crate::value::returns::q_lambda;
use crate::{LearnError, shuffle};
use lapwing_play::Episode;
use lapwing_play::Progress;

const ADAM_EPS: f64 = 1e-8;

/// Makes the updates of a step. Returns their mean, and how many were dropped because their loss or gradient was not finite.
///
/// # Errors
/// If the device fails.
pub fn train(
    learner: &mut NetworkLearner,
    options: &NetworkOptions<'_>,
    step: usize,
    played: &mut NetworkRollout,
    progress: &dyn Progress,
) -> Result<(Option<ValueLearned>, usize), LearnError> {
    value_truncated(learner, &mut played.trajectories)?;
    let (gamma, lambda) = (options.value.gamma, options.pqn.lambda);
    let trajectories = played.episodes.iter().zip(&played.trajectories);
    let turns = trajectories
        .flat_map(|(episode, trajectory)| with_targets(episode, trajectory, gamma, lambda));
    let turns: Vec<TargetTurn> = turns.collect();
    update(learner, options, step, &turns, progress)
}

/// A turn and its target.
struct TargetTurn {
    state: Arc<EncodedState>,
    action: usize,
    /// y
    target: f32,
}

/// Appends the value of the last state to the values of each truncated episode.
fn value_truncated(
    learner: &NetworkLearner,
    trajectories: &mut [Trajectory],
) -> Result<(), LearnError> {
    let mut stopped: Vec<&mut Trajectory> = trajectories
        .iter_mut()
        .filter(|trajectory| trajectory.bootstraps())
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

/// Returns the turns of an episode with their targets.
fn with_targets<'a>(
    episode: &'a Episode,
    trajectory: &'a Trajectory,
    gamma: f64,
    lambda: f64,
) -> impl Iterator<Item = TargetTurn> + 'a {
    let rewards: Vec<f64> = episode.turns.iter().map(|turn| turn.reward).collect();
    let targets = q_lambda(&rewards, &trajectory.values, gamma, lambda);
    let turns = episode.turns.iter().zip(&trajectory.states);
    turns
        .zip(targets)
        .map(|((turn, state), target)| TargetTurn {
            state: state.clone(),
            action: turn.action.expect("a network's action"),
            target: target as f32,
        })
}

/// The updates of a step.
fn update(
    learner: &mut NetworkLearner,
    options: &NetworkOptions<'_>,
    step: usize,
    turns: &[TargetTurn],
    progress: &dyn Progress,
) -> Result<(Option<ValueLearned>, usize), LearnError> {
    let (mut random, optimiser) = (options.random(step), options.optimiser(step, ADAM_EPS));
    let epsilon = options.epsilon(step);
    let passes = options.pqn.passes;
    // Of nearly equal size: a small last batch would count as much as a whole one.
    let batches = turns.len().div_ceil(options.value.batch);
    let size = turns.len().div_ceil(batches);
    let mut order: Vec<usize> = (0..turns.len()).collect();
    let (mut made, mut dropped) = (Vec::new(), 0);
    progress.phase("update", passes * turns.len(), "turns");
    for pass in 0..passes {
        shuffle(&mut order, |count| {
            (random.uniform() * count as f64) as usize
        });
        for (number, part) in order.chunks(size).enumerate() {
            let part: Vec<&TargetTurn> = part.iter().map(|turn| &turns[*turn]).collect();
            let batch = learner.network.batch(part.iter().map(|turn| &*turn.state));
            let q = learner
                .network
                .forward_of(&batch, part.iter().map(|turn| turn.action));
            let targets: Vec<f32> = part.iter().map(|turn| turn.target).collect();
            let errors = Tensor::from_slice(q.gpu(), &targets, &[targets.len(), 1]).sub(&q);
            let half = Tensor::full(q.gpu(), &[], 0.5);
            let loss = errors.square().mean().mul(&half);
            learner.parameters.accumulate(&loss.backward());
            let norm = learner.parameters.step(optimiser);

            let errors: Vec<f64> = errors.to_vec()?.into_iter().map(f64::from).collect();
            let (loss, norm) = (f64::from(loss.to_vec()?[0]), f64::from(norm.to_vec()?[0]));
            match loss.is_finite() && norm.is_finite() {
                true => made.push(ValueLearned::of(
                    &targets,
                    &errors,
                    loss,
                    norm,
                    epsilon,
                    optimiser.lr,
                )),
                false => dropped += 1,
            }
            progress.done(pass * turns.len() + number * size + part.len());
        }
    }
    Ok((ValueLearned::mean_of(&made), dropped))
}
