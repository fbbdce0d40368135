//! PQN (Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning"): Q-learning on what was just played, by many
//! environments at once. Layer normalisation keeps it steady, so there is no replay and no target network.
//!
//! A step, from top to bottom:
//!
//! ```text
//! play      value.episodes episodes, any action with a chance of epsilon, else argmax Q
//! target    y_t = r_t + γ (λ y_{t+1} + (1 - λ) max_a Q(s_{t+1}, a)), from the end of each episode   returns::q_lambda
//! learn     pqn.passes times over all turns in a new order, value.batch of them at once:
//!             loss = mean of (Q(s, a) - y)² / 2; Adam
//! ```
//!
//! Episodes are played to their end, where the original cuts all environments after so many turns and goes on with them in
//! the next step: so a step depends on nothing but the network, and a run that goes on is the run that never stopped. The
//! optimiser is Adam and not its rectified form.

use std::sync::Arc;

use lapwing_tensor::Tensor;

use crate::play::Episode;
use crate::record::metrics::ValueLearned;
use crate::value::player::Path;
use crate::value::returns::q_lambda;
use crate::value::sight::Sight;
use crate::value::state::{Played, State};
use crate::{Error, Progress};

/// Of Adam: the usual.
const ADAM_EPS: f64 = 1e-8;

/// Learns from what was played. Tells what the updates brought on average, and how many were dropped because loss or
/// gradient was no finite number.
///
/// # Errors
/// If the device fails.
pub fn learn(
    state: &mut State,
    played: &mut Played,
    progress: &dyn Progress,
) -> Result<(Option<ValueLearned>, usize), Error> {
    value_the_stopped(state, &mut played.paths)?;
    let (gamma, lambda) = (state.config.value.gamma, state.config.pqn.lambda);
    let paths = played.episodes.iter().zip(&played.paths);
    let turns = paths.flat_map(|(episode, path)| aims(episode, path, gamma, lambda));
    update(state, &turns.collect::<Vec<Aim>>(), progress)
}

/// A turn, and what its action should be worth.
pub struct Aim {
    /// the state
    pub sight: Arc<Sight>,
    /// what was done there
    pub action: usize,
    /// y
    pub target: f32,
}

/// Where an episode was stopped and is to go on, the value of the state that it was stopped in goes behind the others.
fn value_the_stopped(state: &State, paths: &mut [Path]) -> Result<(), Error> {
    let mut stopped: Vec<&mut Path> = paths.iter_mut().filter(|path| path.goes_on()).collect();
    if stopped.is_empty() {
        return Ok(());
    }
    let network = state.network.without_gradients();
    let last = stopped
        .iter()
        .map(|path| &**path.sights.last().expect("it goes on"));
    let q = network.forward(&network.batch(last)).to_vec()?;
    let actions = q.len() / stopped.len();
    for (path, q) in stopped.iter_mut().zip(q.chunks(actions)) {
        let best = q.iter().copied().fold(f32::MIN, f32::max);
        path.values.push(f64::from(best));
    }
    Ok(())
}

/// The turns of an episode with their targets.
fn aims<'a>(
    episode: &'a Episode,
    path: &'a Path,
    gamma: f64,
    lambda: f64,
) -> impl Iterator<Item = Aim> + 'a {
    let rewards: Vec<f64> = episode.turns.iter().map(|turn| turn.reward).collect();
    let targets = q_lambda(&rewards, &path.values, gamma, lambda);
    let turns = episode.turns.iter().zip(&path.sights);
    turns.zip(targets).map(|((turn, sight), target)| Aim {
        sight: sight.clone(),
        action: turn.action.expect("a network's word"),
        target: target as f32,
    })
}

/// The updates of a step.
fn update(
    state: &mut State,
    turns: &[Aim],
    progress: &dyn Progress,
) -> Result<(Option<ValueLearned>, usize), Error> {
    let (mut random, knobs, epsilon) = (state.random(), state.knobs(ADAM_EPS), state.epsilon());
    let passes = state.config.pqn.passes;
    // Of nearly equal size: a small one at the end would count as much as a whole one.
    let batches = turns.len().div_ceil(state.config.value.batch);
    let size = turns.len().div_ceil(batches);
    let mut order: Vec<usize> = (0..turns.len()).collect();
    let (mut made, mut dropped) = (Vec::new(), 0);
    progress.phase("update", passes * turns.len(), "turns");
    for pass in 0..passes {
        // Fisher and Yates.
        for place in (1..order.len()).rev() {
            order.swap(place, (random.uniform() * (place + 1) as f64) as usize);
        }
        for (number, chosen) in order.chunks(size).enumerate() {
            let chosen: Vec<&Aim> = chosen.iter().map(|turn| &turns[*turn]).collect();
            let batch = state.network.batch(chosen.iter().map(|aim| &*aim.sight));
            let q = state
                .network
                .forward_of(&batch, chosen.iter().map(|aim| aim.action));
            let targets: Vec<f32> = chosen.iter().map(|aim| aim.target).collect();
            let errors = Tensor::from_slice(q.gpu(), &targets, &[targets.len(), 1]).sub(&q);
            let loss = errors.square().mean().mul_scalar(0.5);
            state.parameters.accumulate(&loss.backward());
            let norm = state.parameters.step(knobs);

            let errors: Vec<f64> = errors.to_vec()?.into_iter().map(f64::from).collect();
            let (loss, norm) = (f64::from(loss.to_vec()?[0]), f64::from(norm.to_vec()?[0]));
            match loss.is_finite() && norm.is_finite() {
                true => made.push(ValueLearned::of(
                    &targets, &errors, loss, norm, epsilon, knobs.lr,
                )),
                false => dropped += 1,
            }
            progress.done(pass * turns.len() + number * size + chosen.len());
        }
    }
    Ok((ValueLearned::mean_of(&made), dropped))
}
