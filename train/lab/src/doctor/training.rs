//! Whether a model learns on this device: its gradients are slopes, all of an adapter moves, and what a rollout notes is
//! what the update computes.

use lapwing_tensor::random::Random;
use lapwing_tensor::{AdamW, Gradients, NamedValues, Tensor};
use serde_json::json;

use super::{OTHER_DRIVER, Seen};
use lapwing_learn::batch;
use lapwing_learn::batch::{Batch, Chosen};
use lapwing_learn::config::Aggregation;
use lapwing_play::seeds;
use lapwing_play::{Episode, Seat};
use lapwing_train::Error;
use lapwing_train::state::State;

/// Few games, and at most so many tokens at once: the kernels are the same for more.
const GAMES: usize = 4;
const TOKENS: usize = 512;

/// The same in any run of it.
const SEED: u64 = 1;

/// What was seen, or the error that ended it.
fn seen(result: Result<Seen, Error>) -> Seen {
    result
        .unwrap_or_else(|error| Seen::Bad(error.to_string(), OTHER_DRIVER.to_owned(), json!(null)))
}

/// Some games of the model against the referee, as a rollout plays them.
fn play(state: &mut State) -> Result<Vec<Episode>, Error> {
    let seat = |i| {
        let scene = |attempt| seeds::derive(SEED, "doctor", &[i, attempt]);
        Ok(Seat {
            scene: state
                .world()
                .scenes
                .training(&*state.world().scenario, scene)?,
            luck: seeds::derive(SEED, "doctor's luck", &[i]),
            reply: seeds::derive(SEED, "doctor's reply", &[i]),
        })
    };
    let seats = (0..GAMES).map(seat).collect::<Result<Vec<_>, Error>>()?;
    state.play(0, &seats, 1.0, &())
}

/// What the update makes of these games.
fn batches(state: &State, played: &[Episode]) -> Vec<Batch> {
    let ones = vec![1.0; state.world().scenario.step_limit()];
    let one = |episode| Chosen {
        episode,
        advantages: &ones,
        importance: 1.0,
        entropy_weight: 0.0,
    };
    let chosen: Vec<_> = played.iter().map(one).collect();
    let over = batch::count(played.iter(), Aggregation::Token);
    batch::pack(&chosen, Aggregation::Token, over, TOKENS)
}

/// The log-probs of a batch's pairs, as the update computes them.
fn log_probs(state: &State, batch: &Batch, tracked: bool) -> Tensor {
    let model = &state.learner.policy.model;
    let adapter = state.learner.policy.adapter.clone();
    let adapter = match tracked {
        true => adapter,
        false => adapter.map(|adapter| adapter.without_gradients()),
    };
    let packed = batch.on(model.gpu());
    packed.log_probs(model, adapter.as_ref(), 1.0)
}

/// Sampler and trainer compute the same log-probs, to the bit.
pub(super) fn same_log_probs(state: &mut State) -> Seen {
    let compare = |state: &mut State| {
        let played = play(state)?;
        let (mut tokens, mut apart, mut furthest) = (0, 0, 0.0f32);
        for batch in batches(state, &played) {
            let trained = log_probs(state, &batch, false).to_vec()?;
            for token in &batch.tokens {
                let now = trained[token.pair as usize];
                tokens += 1;
                if now.to_bits() != token.old.to_bits() {
                    apart += 1;
                    furthest = furthest.max((now - token.old).abs());
                }
            }
        }
        let figures = json!({ "tokens": tokens, "apart": apart, "furthest": furthest });
        Ok(match apart {
            0 => Seen::Good(
                format!("sampler and trainer agree to the bit on {tokens} tokens"),
                figures,
            ),
            _ => Seen::Bad(
                format!(
                    "sampler and trainer differ on {apart} of {tokens} tokens, by up to {furthest:.1e}"
                ),
                OTHER_DRIVER.to_owned(),
                figures,
            ),
        })
    };
    seen(compare(state))
}

/// The mean log-prob of the first batch, and its gradients.
fn gradients(state: &State, batch: &Batch) -> Gradients {
    log_probs(state, batch, true).mean().backward()
}

/// Two updates; B is zero before the first, so A gets a gradient by the second.
fn updates(state: &mut State, batch: &Batch) -> Result<Gradients, Error> {
    let knobs = AdamW {
        lr: 1e-2,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        max_norm: 1.0,
    };
    let mut last = None;
    for _ in 0..2 {
        let gradients = gradients(state, batch);
        let parameters = state
            .learner
            .parameters
            .as_mut()
            .expect("a run that trains");
        parameters.accumulate(&gradients);
        parameters.step(knobs).to_vec()?;
        last = Some(gradients);
    }
    Ok(last.expect("two updates"))
}

fn values(state: &State) -> Result<Vec<NamedValues>, Error> {
    let parameters = state
        .learner
        .parameters
        .as_ref()
        .expect("a run that trains");
    Ok(parameters.values()?)
}

/// Every tensor of the adapter gets a gradient and moves.
pub(super) fn all_move(state: &mut State) -> Seen {
    let look = |state: &mut State| {
        let played = play(state)?;
        let batches = batches(state, &played);
        let before = values(state)?;
        let gradients = updates(state, &batches[0])?;
        let after = values(state)?;
        let parameters = state
            .learner
            .parameters
            .as_ref()
            .expect("a run that trains");
        let mut still = Vec::new();
        for ((name, _, before), (_, _, after)) in before.iter().zip(&after) {
            let gradient = match gradients.get(&parameters.get(name)) {
                Some(gradient) => gradient.to_vec()?,
                None => Vec::new(),
            };
            let has_gradient = gradient.iter().any(|g| *g != 0.0);
            let is_finite = gradient.iter().chain(after).all(|g| g.is_finite());
            if !(has_gradient && is_finite && before != after) {
                still.push(name.clone());
            }
        }
        let figures = json!({ "tensors": before.len(), "still": still });
        let count = before.len();
        Ok(match still.first() {
            None => Seen::Good(
                format!("each of the {count} tensors of a LoRA adapter gets a gradient and moves"),
                figures,
            ),
            Some(first) => Seen::Bad(
                format!(
                    "{} of the {count} tensors of a LoRA adapter have no finite gradient or do not move, such as {first}",
                    still.len()
                ),
                OTHER_DRIVER.to_owned(),
                figures,
            ),
        })
    };
    seen(look(state))
}

/// How far the loss is moved to both sides. Far more than f32 rounds it (1e-6), and so little that what a straight line
/// leaves out, which extrapolation from two widths lessens further, is some thousandths.
const MOVED: f64 = 0.02;
/// ... in all.
const TOLERANCE: f64 = 0.02;

/// Gradients are slopes: those of a model's adapter against differences of its loss, along the gradient and along a
/// random direction.
pub(super) fn differences(state: &mut State) -> Seen {
    let look = |state: &mut State| {
        let played = play(state)?;
        let batches = batches(state, &played);
        let batch = &batches[0];
        // Away from where half of the gradients are zero.
        updates(state, batch)?;
        let gradients = gradients(state, batch);
        let at = values(state)?;
        let mut gradient = Vec::new();
        for (name, _, values) in &at {
            let parameters = state
                .learner
                .parameters
                .as_ref()
                .expect("a run that trains");
            match gradients.get(&parameters.get(name)) {
                Some(one) => gradient.extend(one.to_vec()?.into_iter().map(f64::from)),
                None => gradient.extend(vec![0.0; values.len()]),
            }
        }
        let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
        let mut random = Random::new(SEED);
        // Half of the way is the gradient's: across it the loss hardly moves, and differences of it say nothing.
        let mut mixed: Vec<f64> = gradient
            .iter()
            .map(|g| {
                g / norm + (2.0 * random.uniform() - 1.0) * (3.0 / gradient.len() as f64).sqrt()
            })
            .collect();
        let length = mixed.iter().map(|d| d * d).sum::<f64>().sqrt();
        mixed.iter_mut().for_each(|d| *d /= length);
        let along: Vec<f64> = gradient.iter().map(|g| g / norm).collect();
        let mut worst: f64 = 0.0;
        for direction in [along, mixed] {
            let wanted: f64 = direction.iter().zip(&gradient).map(|(d, g)| d * g).sum();
            let slope = |width: f64| -> Result<f64, Error> {
                let ahead = loss_at(state, batch, &at, &direction, width)?;
                let behind = loss_at(state, batch, &at, &direction, -width)?;
                Ok((ahead - behind) / (2.0 * width))
            };
            let width = MOVED / norm;
            let got = (4.0 * slope(width / 2.0)? - slope(width)?) / 3.0;
            let error = (got - wanted).abs() / wanted.abs();
            // A NaN must not get lost in a maximum.
            worst = if error.is_nan() {
                error
            } else {
                worst.max(error)
            };
        }
        move_to(state, &at, &vec![0.0; gradient.len()], 0.0);
        let figures = json!({ "relative_error": worst, "gradient_norm": norm });
        Ok(match worst <= TOLERANCE {
            true => Seen::Good(
                format!(
                    "those of a small model are the slopes of its loss, but for {worst:.0e} of them"
                ),
                figures,
            ),
            false => Seen::Bad(
                format!(
                    "those of a small model are off the slopes of its loss by {worst:.0e} of them"
                ),
                OTHER_DRIVER.to_owned(),
                figures,
            ),
        })
    };
    seen(look(state))
}

/// Puts the adapter so far along a direction.
fn move_to(state: &State, from: &[NamedValues], direction: &[f64], by: f64) {
    let parameters = state
        .learner
        .parameters
        .as_ref()
        .expect("a run that trains");
    let mut direction = direction.iter();
    for (name, _, values) in from {
        let moved: Vec<f32> = values
            .iter()
            .zip(&mut direction)
            .map(|(v, d)| (f64::from(*v) + by * d) as f32)
            .collect();
        parameters.get(name).write(&moved);
    }
}

/// The mean log-prob there, added up in double precision.
fn loss_at(
    state: &State,
    batch: &Batch,
    from: &[NamedValues],
    direction: &[f64],
    by: f64,
) -> Result<f64, Error> {
    move_to(state, from, direction, by);
    let log_probs = log_probs(state, batch, false).to_vec()?;
    let sum: f64 = log_probs.iter().map(|l| f64::from(*l)).sum();
    Ok(sum / log_probs.len() as f64)
}
