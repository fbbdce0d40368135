//! Multi-step group-relative policy optimisation (MS-GRPO, arXiv 2508.10839), from top to bottom.
//!
//! Each scene is played by a group of episodes. The advantage A of an episode is how far its whole return stands out in
//! its group, and every token of every turn of the episode gets it. Of each group the episodes that stand out, either
//! way, are likelier to be learned from (absolute-advantage-weighted sampling, AAW). One step of training is
//!
//! ```text
//! play  ->  weigh  ->  choose  ->  learn
//! ```
//!
//! What is learned is a lower loss. For a token of log-prob l, which was l_old when it was drawn and l_ref under the
//! reference:
//!
//! ```text
//! w    = exp(l - l_old)
//! loss = mean over tokens of  beta KL - min(w A, clip(w, 1 - clip_low, 1 + clip_high) A)
//! KL   = exp(-d) - 1 + d                                             with d = l - l_ref (k3)
//! ```
//!
//! In small ops, with a number for each token (one kernel, `Tensor::policy_loss`, does the same):
//!
//! ```
//! # use lapwing_tensor::{Gpu, GpuOptions, Tensor, rl::{Kl, LossToken}};
//! # let gpu = Gpu::open(GpuOptions::default())?;
//! # let tensor = |numbers: [f32; 3]| Tensor::from_slice(&gpu, &numbers, &[3]);
//! # let (clip_low, clip_high) = (0.2, 0.25);
//! # let l = tensor([-0.5, -1.0, -2.0]).tracked();
//! # let (l_old, l_ref) = (tensor([-1.0, -1.25, -1.0]), tensor([-0.75, -1.5, -2.0]));
//! # let (a, share) = (tensor([1.0, -1.5, 0.5]), tensor([0.5, 0.25, 0.25]));
//! # let (beta, one) = (tensor([0.1; 3]), tensor([1.0; 3]));
//! let w = l.sub(&l_old).exp();
//! let surrogate = w.mul(&a).min(&w.clamp(1.0 - clip_low, 1.0 + clip_high).mul(&a));
//! let d = l.sub(&l_ref);
//! let kl = d.neg().exp().sub(&one).add(&d);
//! let loss = beta.mul(&kl).sub(&surrogate).mul(&share).sum();
//! # let numbers = |t: &Tensor| t.to_vec().unwrap();
//! # let token = |i: usize| LossToken {
//! #     pair: i as u32,
//! #     advantage: numbers(&a)[i],
//! #     weight: numbers(&share)[i],
//! #     old: numbers(&l_old)[i],
//! #     reference: numbers(&l_ref)[i],
//! # };
//! # let fused = l.policy_loss(&[0, 1, 2].map(token), (clip_low, clip_high), 0.1, Kl::K3).loss;
//! # let near = |x: Vec<f32>, y: Vec<f32>| x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-6);
//! # assert!(near(loss.to_vec()?, fused.to_vec()?));
//! # let slope = |loss: Tensor| numbers(loss.backward().get(&l).unwrap());
//! # assert!(near(slope(loss), slope(fused)));
//! # Ok::<(), lapwing_tensor::GpuError>(())
//! ```
//!
//! Choices where the paper is silent, and departures from it:
//! 1. The standard deviation is that of a sample (n - 1), plus 1e-6.
//! 2. A group whose returns are all equal is skipped whole: no gradient from the KL penalty alone.
//! 3. The reference is the model as training found it, with its adapter or none (with all weights and beta = 0: nothing).
//! 4. A step may play several scenes, a group for each. Scenes that are kept for the evaluation are never trained on.
//! 5. Equal prompts are computed once, in play and in the update. The results are those of separate sequences.
//! 6. In a game of several agents the group of a scene is a group for each of them.

use std::time::Instant;

use lapwing_env::rng::Stream;
use lapwing_tensor::AdamW;

use crate::learn::batch::{self, Chosen, pack};
use crate::learn::group::{Group, all_chosen, choose, effective_episodes, entropy_weight, weigh};
use crate::learn::measure::measured;
use crate::learn::ratio::Ratios;
use crate::learn::rollout::rollout;
use crate::record::metrics::{Learned, StepMetrics, now};
use crate::run::seeds;
use crate::run::state::State;
use crate::{Error, Progress};

/// One step of training: play, weigh, choose, learn.
///
/// # Errors
/// If the game, the model or the device fails.
pub fn step(
    state: &mut State,
    progress: &dyn Progress,
) -> Result<(StepMetrics, Vec<Group>), Error> {
    // Play every scene with a group of episodes, all at once, with the policy as it stands.
    let started = Instant::now();
    let computed_before = state.policy.arena.computed();
    let rollout = rollout(state, progress)?;
    let tokens_rollout = state.policy.arena.computed() - computed_before;
    let seconds_rollout = started.elapsed().as_secs_f64();

    let measured = measured(state, &rollout.groups)?;

    // Weigh each episode against its group, and choose which to learn from.
    let started = Instant::now();
    let mut groups = rollout.groups;
    weigh(&mut groups, &state.config);
    choose(&mut groups, &state.config.train, state.step);

    // Learn from them.
    let (learned, updates_dropped) = learn(state, &groups, progress)?;
    let metrics = StepMetrics {
        step: state.step + 1,
        time: now(),
        play: rollout.play,
        games: rollout.games,
        tokens_played: rollout.tokens_played,
        tokens_computed: tokens_rollout + learned.map_or(0, |l| l.tokens_computed),
        seconds_rollout,
        seconds_update: started.elapsed().as_secs_f64(),
        groups_skipped: groups.iter().filter(|g| g.chosen.is_empty()).count(),
        updates_dropped,
        temperature: (state.config.policy.spread > 0.0).then_some(state.temperature),
        entropy_weight: entropy_weight(&groups),
        effective_episodes: effective_episodes(&groups),
        measured,
        learned,
        ..StepMetrics::default()
    };
    Ok((metrics, groups))
}

/// Passes over the chosen episodes; each minibatch is one optimiser update. Tells what they brought (`None` if there was
/// nothing to learn from), and how many were dropped because a number in them was not finite.
///
/// The loss is a mean over the tokens of the chosen episodes. Under `train.correction` it is divided by what a draw is
/// expected to hold instead: dividing by what this one holds would bias the weights that were just corrected.
pub(super) fn learn(
    state: &mut State,
    groups: &[Group],
    progress: &dyn Progress,
) -> Result<(Option<Learned>, usize), Error> {
    let train = state.config.train.clone();
    let lr = train.lr * ((state.step + 1) as f64 / (train.warmup + 1) as f64).min(1.0);
    let (chosen, expected) = all_chosen(groups, train.aggregation);
    let (mut updates, mut dropped) = (Vec::new(), 0);
    for pass in 0..train.passes {
        let mut order: Vec<usize> = (0..chosen.len()).collect();
        if train.minibatches > 1 {
            let seed = seeds::derive(train.seed, "minibatches", &[state.step, pass]);
            shuffle(&mut order, &mut Stream::new(seed, "minibatches"));
        }
        for part in parts(&order, train.minibatches) {
            let minibatch: Vec<Chosen<'_>> = part.iter().map(|i| chosen[*i]).collect();
            let over = match train.correction {
                true => expected * part.len() as f64 / chosen.len() as f64,
                false => batch::count(minibatch.iter().map(|c| c.episode), train.aggregation),
            };
            let learned = update(state, &minibatch, over, lr, progress)?;
            match learned.is_finite() {
                true => updates.push(learned),
                false => dropped += 1,
            }
        }
    }
    Ok((Learned::mean_of(&updates), dropped))
}

/// As many parts as asked for, as long as there is something for each; their lengths differ by one at most.
fn parts(order: &[usize], count: usize) -> impl Iterator<Item = &[usize]> {
    let count = count.min(order.len());
    (0..count).map(move |i| &order[i * order.len() / count..(i + 1) * order.len() / count])
}

/// One optimiser update from these episodes.
fn update(
    state: &mut State,
    chosen: &[Chosen<'_>],
    over: f64,
    lr: f64,
    progress: &dyn Progress,
) -> Result<Learned, Error> {
    let train = &state.config.train;
    let temperature = state.temperature as f32;
    let policy = &state.policy;
    let model = &policy.model;
    let parameters = state.parameters.as_mut().expect("a run that trains");

    let mut batches = pack(chosen, train.aggregation, over, train.tokens_per_batch);
    let ratios = Ratios::new(train, policy, &batches, temperature)?;
    let all_tokens: usize = batches.iter().map(|batch| batch.tokens.len()).sum();
    let mut learned = Learned {
        lr,
        ..Learned::default()
    };
    progress.phase("update", batches.len(), "batches");
    for (done, batch) in batches.iter_mut().enumerate() {
        let packed = batch.on(model.gpu());
        let log_probs = |model, adapter| packed.log_probs(model, adapter, temperature);
        // The reference: the model as it was when training began.
        if let Some(reference) = &policy.reference {
            let log_probs = log_probs(&reference.model, reference.adapter.as_ref()).to_vec()?;
            let tokens = batch.tokens.iter_mut();
            tokens.for_each(|token| token.reference = log_probs[token.pair as usize]);
            learned.tokens_computed += batch.tree.len() as u64;
        }

        // The policy as it is now, and the loss of every sampled token.
        let log_probs = log_probs(model, policy.adapter.as_ref());
        let now = log_probs.to_vec()?;
        learned.first_ratio_error = learned.first_ratio_error.max(batch.ratio_error(&now));
        let clipped = ratios.put(batch, &now);
        let of = log_probs.policy_loss(&batch.tokens, ratios.clip(), train.beta as f32, train.kl);
        parameters.accumulate(&of.loss.backward());

        let share = batch.tokens.len() as f64 / all_tokens as f64;
        learned.loss += f64::from(of.loss.to_vec()?[0]) + clipped.loss;
        let kl = learned.kl.unwrap_or_default() + share * f64::from(of.kl.to_vec()?[0]);
        learned.kl = policy.reference.as_ref().map(|_| kl);
        learned.clip_fraction +=
            share * (f64::from(of.clip_fraction.to_vec()?[0]) + clipped.fraction);
        learned.tokens_computed += batch.tree.len() as u64;
        progress.done(done + 1);
    }
    if !learned.loss.is_finite() {
        parameters.discard();
        return Ok(learned);
    }
    // A norm that is not finite changes nothing either.
    let norm = parameters.step(AdamW {
        lr,
        beta1: train.betas[0],
        beta2: train.betas[1],
        eps: 1e-8,
        weight_decay: train.weight_decay,
        max_norm: train.max_grad_norm,
    });
    learned.grad_norm = f64::from(norm.to_vec()?[0]);
    Ok(learned)
}

/// Fisher and Yates.
fn shuffle(order: &mut [usize], chance: &mut Stream) {
    for i in (1..order.len()).rev() {
        order.swap(i, chance.below(i + 1));
    }
}

#[cfg(test)]
mod tests;
