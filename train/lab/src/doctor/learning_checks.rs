//! Checks whether a model learns on this device: gradients match finite differences of the loss, all tensors of an
//! adapter change, and the log-probs of a rollout equal those of the update.

use lapwing_tensor::random::Random;
use lapwing_tensor::{AdamW, Gradients, NamedValues, Parameters, Tensor};
use serde_json::json;

use super::Finding;
use lapwing_learn::batch::{Batch, pack_all};
use lapwing_play::Seat;
use lapwing_play::seeds;
use lapwing_train::Error;
use lapwing_train::state::State;

const GAMES: usize = 4;
const TOKENS: usize = 512;
/// The number of tokens that suffices.
const SAMPLED: usize = 64;
const SEED: u64 = 1;

fn parameters(state: &State) -> &Parameters {
    let parameters = state.learner.parameters.as_ref();
    parameters.expect("a run that trains")
}

/// Plays some games as in a rollout, and packs them as in an update.
fn batches(state: &mut State) -> Result<Vec<Batch>, Error> {
    let turns = (SAMPLED / GAMES / state.config.policy.max_new_tokens).max(1);
    let world = state.world();
    let seat = |i| {
        let scene = |attempt| seeds::derive(SEED, "doctor", &[i, attempt]);
        Ok(Seat {
            scene: world.scenes.training(&*world.scenario, scene)?,
            luck: seeds::derive(SEED, "doctor's luck", &[i]),
            reply: seeds::derive(SEED, "doctor's reply", &[i]),
        })
    };
    let seats = (0..GAMES).map(seat).collect::<Result<Vec<_>, Error>>()?;
    let (scenario, mut referee, mut player) = state.seated(0, 1.0);
    referee.step_limit = turns.min(referee.step_limit);
    let played = referee.play(scenario, &seats, &mut [&mut player], &mut |_| ())?;
    Ok(pack_all(played.iter(), TOKENS))
}

/// Returns the log-probs of a batch's pairs, as an update computes them.
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

/// Checks that the log-probs of the rollout and of the update are bit-identical.
pub(super) fn log_probs_agree(state: &mut State) -> Result<Finding, Error> {
    let (mut tokens, mut apart, mut furthest) = (0, 0, 0.0f32);
    for batch in batches(state)? {
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
    let text = match apart {
        0 => format!("the log-probs of rollout and update are bit-identical on {tokens} tokens"),
        _ => format!(
            "the log-probs of rollout and update differ on {apart} of {tokens} tokens, by up to {furthest:.1e}"
        ),
    };
    Ok(Finding::of_device(apart == 0, text, figures))
}

fn gradients(state: &State, batch: &Batch) -> Gradients {
    log_probs(state, batch, true).mean().backward()
}

/// Returns the gradient of each parameter: zeros if it has none.
fn of_parameters(
    state: &State,
    gradients: &Gradients,
    values: &[NamedValues],
) -> Result<Vec<Vec<f32>>, Error> {
    let of = |(name, _, values): &NamedValues| match gradients.get(&parameters(state).get(name)) {
        Some(gradient) => Ok(gradient.to_vec()?),
        None => Ok(vec![0.0; values.len()]),
    };
    values.iter().map(of).collect()
}

/// Makes two updates, and returns the gradients of the second. B is zero before the first, so A has no gradient there.
fn updates(state: &mut State, batch: &Batch) -> Result<Gradients, Error> {
    let settings = AdamW {
        lr: 1e-2,
        max_norm: 1.0,
        ..AdamW::default()
    };
    let mut update = || -> Result<Gradients, Error> {
        let gradients = gradients(state, batch);
        let parameters = state.learner.parameters.as_mut();
        let parameters = parameters.expect("a run that trains");
        parameters.accumulate(&gradients);
        parameters.step(settings).to_vec()?;
        Ok(gradients)
    };
    update()?;
    update()
}

/// Checks that every tensor of the adapter has a gradient and changes.
pub(super) fn all_tensors_move(state: &mut State) -> Result<Finding, Error> {
    let batches = batches(state)?;
    let before = parameters(state).values()?;
    let gradients = updates(state, &batches[0])?;
    let gradients = of_parameters(state, &gradients, &before)?;
    let after = parameters(state).values()?;
    let mut still = Vec::new();
    for (((name, _, before), (_, _, after)), gradient) in before.iter().zip(&after).zip(gradients) {
        let has_gradient = gradient.iter().any(|g| *g != 0.0);
        let is_finite = gradient.iter().chain(after).all(|g| g.is_finite());
        if !(has_gradient && is_finite && before != after) {
            still.push(name);
        }
    }
    let figures = json!({ "tensors": before.len(), "still": still });
    let count = before.len();
    let text = match still.first() {
        None => format!("each of the {count} tensors of a LoRA adapter has a gradient and moves"),
        Some(first) => format!(
            "{} of the {count} tensors of a LoRA adapter have no finite gradient or do not move, such as {first}",
            still.len()
        ),
    };
    Ok(Finding::of_device(still.is_empty(), text, figures))
}

/// The loss change on either side. It is far larger than the rounding of f32 (1e-6), and small enough for an
/// extrapolated difference that is accurate to some thousandths.
const LOSS_CHANGE: f64 = 0.02;
const MAX_SLOPE_ERROR: f64 = 0.02;

/// Compares the gradient of an adapter with differences of the loss, along the gradient and along a random direction.
pub(super) fn gradients_are_slopes(state: &mut State) -> Result<Finding, Error> {
    let batches = batches(state)?;
    let batch = &batches[0];
    // Before the first update, half of the gradients are zero.
    updates(state, batch)?;
    let gradients = gradients(state, batch);
    let at = parameters(state).values()?;
    let gradient = of_parameters(state, &gradients, &at)?.concat();
    let gradient: Vec<f64> = gradient.into_iter().map(f64::from).collect();
    let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
    let mut random = Random::new(SEED);
    // Half of it is the gradient: the loss is almost constant in directions orthogonal to the gradient.
    let mut mixed: Vec<f64> = gradient
        .iter()
        .map(|g| g / norm + (2.0 * random.uniform() - 1.0) * (3.0 / gradient.len() as f64).sqrt())
        .collect();
    let length = mixed.iter().map(|d| d * d).sum::<f64>().sqrt();
    mixed.iter_mut().for_each(|d| *d /= length);
    let along: Vec<f64> = gradient.iter().map(|g| g / norm).collect();
    // Summed in double precision.
    let loss_at = |direction: &[f64], by: f64| -> Result<f64, Error> {
        move_to(state, &at, direction, by);
        let log_probs = log_probs(state, batch, false).to_vec()?;
        let sum: f64 = log_probs.iter().map(|l| f64::from(*l)).sum();
        Ok(sum / log_probs.len() as f64)
    };
    let mut errors = Vec::new();
    for direction in [along, mixed] {
        let wanted: f64 = direction.iter().zip(&gradient).map(|(d, g)| d * g).sum();
        let slope = |width: f64| -> Result<f64, Error> {
            Ok((loss_at(&direction, width)? - loss_at(&direction, -width)?) / (2.0 * width))
        };
        let width = LOSS_CHANGE / norm;
        let got = (4.0 * slope(width / 2.0)? - slope(width)?) / 3.0;
        errors.push((got - wanted).abs() / wanted.abs());
    }
    // NaN is the largest value in total order.
    let worst = errors.into_iter().max_by(f64::total_cmp);
    let worst = worst.expect("two directions");
    move_to(state, &at, &vec![0.0; gradient.len()], 0.0);
    let figures = json!({ "relative_error": worst, "gradient_norm": norm });
    let is_good = worst <= MAX_SLOPE_ERROR;
    let relation = if is_good { "are" } else { "differ from" };
    let text = format!(
        "the gradients of a small model {relation} the slopes of its loss, with a relative error of {worst:.0e}"
    );
    Ok(Finding::of_device(is_good, text, figures))
}

/// Moves the adapter along a direction.
fn move_to(state: &State, from: &[NamedValues], direction: &[f64], by: f64) {
    let mut direction = direction.iter();
    for (name, _, values) in from {
        let moved: Vec<f32> = values
            .iter()
            .zip(&mut direction)
            .map(|(v, d)| (f64::from(*v) + by * d) as f32)
            .collect();
        parameters(state).get(name).detach().write(&moved);
    }
}
