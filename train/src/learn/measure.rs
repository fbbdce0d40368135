//! How noisy a step's gradient is: what credit, sampling and group sizes are to be judged by.
//!
//! The episodes of every group are dealt into two halves, each of which is weighed, chosen from and learned from by itself,
//! as if the other had not been played. With a and b the gradients of the halves (means over the groups), which are
//! independent once the scenes are given,
//!
//! ```text
//! signal       a . b                                 on average |mean gradient|^2
//! variance     |a - b|^2 / 4                         on average that of (a + b) / 2
//! agreement    a . b / (|a| |b|)                     -1 to 1, whatever the gradient's scale: 0 is noise alone
//! by scenes    sum |g_k - mean g|^2 / (K (K - 1))    that of the mean over K groups, what the scenes add included
//! alignment    the cosine to the gradient of the step before
//! ```
//!
//! Measured is the policy gradient without the KL penalty. It costs a forward and a backward pass over about as much as
//! the update learns from, and changes nothing.
//!
//! Only projections are kept (Charikar, Chen and Farach-Colton 2002: each number goes into one of 1024 sums, with a sign,
//! both by its place): products of projections are those of the gradients on average, and err by a thirtieth or so of the
//! lengths.

use lapwing_env::rng::Stream;
use lapwing_tensor::rl::Kl;

use crate::Error;
use crate::learn::batch::{self, pack};
use crate::learn::group::{Group, all_chosen, choose, weigh};
use crate::record::metrics::Measured;
use crate::run::config::Train;
use crate::run::state::State;

/// Sums that a gradient is projected to.
const SUMS: usize = 1024;

/// A gradient, projected.
type Sketch = Vec<f64>;

/// Measures the gradient of a step that played these groups, with the policy as it stands, if the run does that
/// (`train.measure`); `None` too if there is nothing to learn from one of the halves.
///
/// # Errors
/// If the device fails.
///
/// # Panics
/// If the state is not one that trains.
pub fn measured(state: &mut State, groups: &[Group]) -> Result<Option<Measured>, Error> {
    if !state.config.train.measure {
        return Ok(None);
    }
    let before = state.gradient.take();
    let (first, second) = (half(state, groups, 0)?, half(state, groups, 1)?);
    let (a, b) = (mean(&first), mean(&second));
    let together: Vec<Sketch> = first
        .iter()
        .zip(&second)
        .map(|(a, b)| mean(&[a.clone(), b.clone()]))
        .collect();
    let whole = mean(&together);
    let told = told(&a, &b, &together, before.as_ref());
    state.gradient = Some(whole);
    Ok(told)
}

/// What two halves and the groups' gradients tell.
fn told(a: &Sketch, b: &Sketch, groups: &[Sketch], before: Option<&Sketch>) -> Option<Measured> {
    let (signal, lengths) = (dot(a, b), (dot(a, a) * dot(b, b)).sqrt());
    if lengths == 0.0 {
        return None;
    }
    let whole = mean(groups);
    let count = groups.len() as f64;
    let from_mean = groups.iter().map(|group| apart(group, &whole));
    let cosine = |before: &Sketch| {
        let lengths = (dot(&whole, &whole) * dot(before, before)).sqrt();
        (lengths > 0.0).then(|| dot(&whole, before) / lengths)
    };
    Some(Measured {
        gradient_signal: signal,
        gradient_variance: apart(a, b) / 4.0,
        gradient_agreement: signal / lengths,
        gradient_variance_scenes: (groups.len() > 1)
            .then(|| from_mean.sum::<f64>() / (count * (count - 1.0))),
        gradient_alignment: before.and_then(cosine),
    })
}

/// Each group's part in the gradient of a half of every group's episodes, as if all groups' parts were averaged.
fn half(state: &mut State, groups: &[Group], which: usize) -> Result<Vec<Sketch>, Error> {
    let train = &state.config.train;
    let mut halves: Vec<Group> = groups.iter().map(|group| dealt(group, which)).collect();
    weigh(&mut halves, &state.config);
    let learn = train.learn.div_ceil(2);
    choose(
        &mut halves,
        &Train {
            learn,
            ..train.clone()
        },
        state.step,
    );

    let (chosen, expected) = all_chosen(&halves, train.aggregation);
    let over = match train.correction {
        true => expected,
        false => batch::count(chosen.iter().map(|c| c.episode), train.aggregation),
    };
    let policy = &state.policy;
    let parameters = state.parameters.as_mut().expect("a run that trains");
    let mut sketches = Vec::with_capacity(halves.len());
    for group in &halves {
        let (chosen, _) = all_chosen(std::slice::from_ref(group), train.aggregation);
        for batch in pack(&chosen, train.aggregation, over, train.tokens_per_batch) {
            let log_probs = batch.on(policy.model.gpu()).log_probs(
                &policy.model,
                policy.adapter.as_ref(),
                state.temperature as f32,
            );
            // Clipping has no part in it: this is the first update's gradient.
            let of = log_probs.policy_loss(&batch.tokens, (1.0, 1.0), 0.0, Kl::K3);
            parameters.accumulate(&of.loss.backward());
        }
        let gradient = parameters.gathered()?;
        parameters.discard();
        sketches.push(sketch(&gradient, groups.len() as f64));
    }
    Ok(sketches)
}

/// Every other episode of a group.
fn dealt(group: &Group, which: usize) -> Group {
    let episodes = group.episodes.iter().skip(which).step_by(2);
    let values = group.values.iter().skip(which).step_by(2);
    Group {
        world: group.world,
        scene: group.scene,
        agent: group.agent,
        episodes: episodes.cloned().collect(),
        values: values.cloned().collect(),
        ..Group::default()
    }
}

/// The projection of `factor` times a gradient.
fn sketch(gradient: &[f32], factor: f64) -> Sketch {
    let mut sums = vec![0.0; SUMS];
    // The same places and signs each time.
    let mut chance = Stream::new(0, "projection");
    for number in gradient {
        let drawn = chance.below(2 * SUMS);
        let sign = if drawn < SUMS { factor } else { -factor };
        sums[drawn % SUMS] += sign * f64::from(*number);
    }
    sums
}

fn mean(sketches: &[Sketch]) -> Sketch {
    let mut mean = vec![0.0; SUMS];
    for sketch in sketches {
        for (sum, number) in mean.iter_mut().zip(sketch) {
            *sum += number / sketches.len() as f64;
        }
    }
    mean
}

fn dot(a: &Sketch, b: &Sketch) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn apart(a: &Sketch, b: &Sketch) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}

#[cfg(test)]
mod tests;
