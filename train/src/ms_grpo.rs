//! Multi-step group-relative policy optimisation (MS-GRPO, arXiv 2508.10839), from top to bottom.
//!
//! Each scene is played by a group of episodes. The advantage of an episode is how far its whole return stands out in
//! its group, and every token of every step of the episode gets it. Of each group the episodes that stand out, either
//! way, are likelier to be learned from (absolute-advantage-weighted sampling, AAW). One step of training is
//!
//! ```text
//! play  ->  weigh  ->  choose  ->  learn
//! ```
//!
//! Choices where the paper is silent, and departures from it:
//! 1. The standard deviation is that of a sample (n - 1), plus 1e-6.
//! 2. A group whose returns are all equal is skipped whole: no gradient from the KL penalty alone.
//! 3. The KL penalty is estimated per token by k3, and the reference is the same model with its adapter off; or, when
//!    training goes on from an adapter, with that adapter as it was.
//! 4. A step may play several scenes, a group for each. Scenes that the evaluation plays are never trained on.
//! 5. Equal prompts are computed once, in play and in the update. The results are those of separate sequences.

use std::time::Instant;

use lapwing_env::rng::Stream;
use lapwing_model::{Adapter, Tokens};
use lapwing_tensor::{AdamW, Indices, KlEstimator};

use crate::aaw;
use crate::batch::{Chosen, pack};
use crate::config::{Kl, Sampling, Train};
use crate::error::Error;
use crate::evaluate::evaluate;
use crate::report::{Report, StepMetrics};
use crate::rollout::{Episode, Seat};
use crate::run::Run;
use crate::seeds;

/// Trains from the first step to the last, with evaluations before, between and after.
///
/// # Errors
/// If the device, the model or the disk fails. What was recorded before stays.
pub fn train(run: &mut Run, report: &mut Report) -> Result<(), Error> {
    let steps = run.config.train.steps;
    for number in 0..steps {
        if run.is_evaluated(number) {
            let metrics = evaluate(run, report.display())?;
            report.evaluation(number, &metrics)?;
        }
        let metrics = step(run, report, number)?;
        report.step(&metrics)?;
    }
    let metrics = evaluate(run, report.display())?;
    report.evaluation(steps, &metrics)?;
    run.save_adapter(&report.run().adapter())
}

/// One step of training: play, weigh, choose, learn.
fn step(run: &mut Run, report: &Report, number: usize) -> Result<StepMetrics, Error> {
    // Play every scene with a group of episodes, all at once, with the policy as it stands.
    let started = Instant::now();
    let computed_before = run.arena.computed();
    let seats = seats(run, number);
    let temperature = run.config.policy.temperature;
    report.phase("rollout", seats.len(), "episodes");
    let episodes = run.play(&seats, temperature, |finished| report.progress(finished))?;
    let tokens_rollout = run.arena.computed() - computed_before;
    let seconds_rollout = started.elapsed().as_secs_f64();

    // Weigh each episode against its group, and choose which to learn from.
    let started = Instant::now();
    let train = &run.config.train;
    let mut chosen = Vec::new();
    let mut groups_skipped = 0;
    for (number_of_group, group) in episodes.chunks(train.group_size).enumerate() {
        let returns: Vec<f64> = group.iter().map(Episode::composite_return).collect();
        let advantages = advantages(&returns);
        if advantages.iter().all(|a| *a == 0.0) {
            groups_skipped += 1;
            continue;
        }
        let seed = seeds::derive(train.seed, "choose", &[number, number_of_group]);
        for (i, importance) in choose(train, &advantages, &mut Stream::new(seed, "choose")) {
            chosen.push(Chosen {
                episode: &group[i],
                advantage: advantages[i],
                importance,
            });
        }
    }

    // Learn from them.
    let learned = learn(run, report, number, &chosen)?;
    Ok(StepMetrics {
        step: number + 1,
        kl: learned.kl,
        clip_fraction: learned.clip_fraction,
        grad_norm: learned.grad_norm,
        loss: learned.loss,
        lr: learned.lr,
        groups_skipped,
        tokens_computed: tokens_rollout + learned.tokens_computed,
        seconds_rollout,
        seconds_update: started.elapsed().as_secs_f64(),
        ..StepMetrics::of_episodes(&episodes)
    })
}

/// Who plays in this step: `group_size` episodes on each of `groups` fresh scenes.
fn seats(run: &Run, step: usize) -> Vec<Seat> {
    let train = &run.config.train;
    let mut seats = Vec::with_capacity(train.groups * train.group_size);
    for group in 0..train.groups {
        let scene = run.training_scene(step, group);
        for episode in 0..train.group_size {
            let member = if train.shared_luck { 0 } else { episode };
            seats.push(Seat {
                scene,
                luck: seeds::derive(train.seed, "luck", &[step, group, member]),
                reply: seeds::derive(train.seed, "reply", &[step, group, episode]),
            });
        }
    }
    seats
}

/// A_j = (C_j - mean) / (sample standard deviation + 1e-6); exact zeros if all returns are exactly equal.
pub fn advantages(returns: &[f64]) -> Vec<f64> {
    // Compared, not computed: rounding would leave a spread of its own to divide by.
    if returns.iter().all(|c| *c == returns[0]) {
        return vec![0.0; returns.len()];
    }
    let count = returns.len() as f64;
    let mean = returns.iter().sum::<f64>() / count;
    let variance = returns.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (count - 1.0);
    returns
        .iter()
        .map(|c| (c - mean) / (variance.sqrt() + 1e-6))
        .collect()
}

/// Which episodes of a group to learn from, and the importance of each.
fn choose(train: &Train, advantages: &[f64], chance: &mut Stream) -> Vec<(usize, f64)> {
    let count = train.learn.min(advantages.len());
    let weights = match train.sampling {
        Sampling::All => return (0..advantages.len()).map(|i| (i, 1.0)).collect(),
        Sampling::Top => {
            let mut order: Vec<usize> = (0..advantages.len()).collect();
            order.sort_by(|a, b| advantages[*b].abs().total_cmp(&advantages[*a].abs()));
            return order[..count].iter().map(|i| (*i, 1.0)).collect();
        }
        Sampling::Uniform => vec![1.0 / advantages.len() as f64; advantages.len()],
        Sampling::Aaw => aaw::weights(advantages, train.aaw_temperature),
    };
    let drawn = aaw::draw(&weights, count, chance);
    if !train.correction {
        return drawn.into_iter().map(|i| (i, 1.0)).collect();
    }
    // Scaled so that an even draw has importance 1.
    let chances = aaw::inclusion(&weights, count);
    let even = count as f64 / advantages.len() as f64;
    drawn.into_iter().map(|i| (i, even / chances[i])).collect()
}

/// What an update did, averaged over the tokens it learned from; and what a step did, averaged over its updates.
#[derive(Debug, Clone, Copy, Default)]
pub struct Learned {
    /// the loss before the optimiser update
    pub loss: f64,
    /// the estimate of KL(policy || reference), nats a token
    pub kl: f64,
    /// share of the tokens whose ratio was clipped
    pub clip_fraction: f64,
    /// norm of the whole gradient before it was cut
    pub grad_norm: f64,
    /// learning rate
    pub lr: f64,
    /// positions that ran through the model, for reference and policy
    pub tokens_computed: u64,
}

/// Passes over the chosen episodes; each minibatch is one optimiser update.
fn learn(
    run: &mut Run,
    report: &Report,
    number: usize,
    chosen: &[Chosen<'_>],
) -> Result<Learned, Error> {
    let train = run.config.train.clone();
    let lr = train.lr * ((number + 1) as f64 / (train.warmup + 1) as f64).min(1.0);
    let mut learned = Learned {
        lr,
        ..Learned::default()
    };
    let mut updates = 0.0;
    for pass in 0..train.passes {
        let mut order: Vec<usize> = (0..chosen.len()).collect();
        if train.minibatches > 1 {
            let seed = seeds::derive(train.seed, "minibatches", &[number, pass]);
            shuffle(&mut order, &mut Stream::new(seed, "minibatches"));
        }
        for part in order.chunks(order.len().div_ceil(train.minibatches).max(1)) {
            let minibatch: Vec<Chosen<'_>> = part.iter().map(|i| chosen[*i]).collect();
            let update = update(run, report, &minibatch, lr)?;
            learned.loss += update.loss;
            learned.kl += update.kl;
            learned.clip_fraction += update.clip_fraction;
            learned.grad_norm += update.grad_norm;
            learned.tokens_computed += update.tokens_computed;
            updates += 1.0;
        }
    }
    if updates > 0.0 {
        for mean in [
            &mut learned.loss,
            &mut learned.kl,
            &mut learned.clip_fraction,
            &mut learned.grad_norm,
        ] {
            *mean /= updates;
        }
    }
    Ok(learned)
}

/// One optimiser update from these episodes.
fn update(
    run: &mut Run,
    report: &Report,
    chosen: &[Chosen<'_>],
    lr: f64,
) -> Result<Learned, Error> {
    let train = &run.config.train;
    let temperature = run.config.policy.temperature as f32;
    let clip = (train.clip_low as f32, train.clip_high as f32);
    let (model, adapter, gpu) = (
        &run.agent.model,
        run.agent.adapter.as_ref(),
        run.agent.model.gpu(),
    );
    let parameters = run.parameters.as_mut().expect("a run that trains");

    let mut batches = pack(chosen, train.aggregation, train.tokens_per_batch);
    let all_tokens: usize = batches.iter().map(|batch| batch.tokens.len()).sum();
    let mut learned = Learned {
        lr,
        ..Learned::default()
    };
    report.phase("update", batches.len(), "batches");
    for (done, batch) in batches.iter_mut().enumerate() {
        let tokens = Tokens::new(gpu, &batch.tree);
        let (rows, targets) = (
            Indices::new(gpu, &batch.rows),
            Indices::new(gpu, &batch.targets),
        );

        let log_probs = |adapter: Option<&Adapter>| {
            let hidden = model.forward(&tokens, adapter);
            hidden
                .log_probs(&model.head(adapter), &rows, &targets, temperature)
                .log_probs
        };

        // The reference: the same model with its adapter off, or as it was when training began.
        let reference = log_probs(run.agent.reference.as_ref()).to_vec()?;
        for token in &mut batch.tokens {
            token.reference = reference[token.pair as usize];
        }

        // The policy as it is now, and the loss of every sampled token.
        let log_probs = log_probs(adapter);
        let of = log_probs.policy_loss(&batch.tokens, clip, train.beta as f32, estimator(train.kl));
        parameters.accumulate(&of.loss.backward());

        let share = batch.tokens.len() as f64 / all_tokens as f64;
        learned.loss += f64::from(of.loss.to_vec()?[0]);
        learned.kl += share * f64::from(of.kl.to_vec()?[0]);
        learned.clip_fraction += share * f64::from(of.clip_fraction.to_vec()?[0]);
        learned.tokens_computed += 2 * batch.tree.len() as u64;
        report.progress(done + 1);
    }
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

fn estimator(kl: Kl) -> KlEstimator {
    match kl {
        Kl::K1 => KlEstimator::K1,
        Kl::K2 => KlEstimator::K2,
        Kl::K3 => KlEstimator::K3,
    }
}

/// Fisher and Yates.
fn shuffle(order: &mut [usize], chance: &mut Stream) {
    for i in (1..order.len()).rev() {
        order.swap(i, chance.below(i + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn advantages_are_the_golden_ones() {
        let text = include_str!("../../fixtures/golden/advantages.json");
        let golden: Value = serde_json::from_str(text).unwrap();
        for case in golden["cases"].as_array().unwrap() {
            let numbers = |key: &str| -> Vec<f64> {
                case[key]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|v| v.as_f64().unwrap())
                    .collect()
            };
            for (got, wanted) in advantages(&numbers("returns"))
                .iter()
                .zip(numbers("advantages"))
            {
                assert!(
                    (got - wanted).abs() < 1e-9,
                    "{got} against {wanted} in {case}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn advantages_of_a_group_sum_to_zero_and_ignore_a_shift(
            returns in proptest::collection::vec(-4i32..4, 2..50), shift in -8i32..8,
        ) {
            // whole numbers, so that the shift is exact
            let returns: Vec<f64> = returns.iter().map(|c| f64::from(*c)).collect();
            let shifted: Vec<f64> = returns.iter().map(|c| c + f64::from(shift)).collect();
            let got = advantages(&returns);
            prop_assert!(got.iter().sum::<f64>().abs() < 1e-9);
            for (a, b) in got.iter().zip(advantages(&shifted)) {
                prop_assert!((a - b).abs() < 1e-9);
            }
        }

        #[test]
        fn equal_returns_have_no_advantage(value: f64, count in 1usize..20) {
            prop_assume!(value.is_finite());
            prop_assert!(advantages(&vec![value; count]).iter().all(|a| *a == 0.0));
        }

        #[test]
        fn every_way_to_choose_takes_distinct_episodes(
            advantages in proptest::collection::vec(-3.0f64..3.0, 1..40), learn in 1usize..50, seed: u64,
        ) {
            for sampling in [Sampling::All, Sampling::Top, Sampling::Uniform, Sampling::Aaw] {
                for correction in [false, true] {
                    let train = Train { learn, sampling, correction, ..Train::default() };
                    let mut chosen = choose(&train, &advantages, &mut Stream::new(seed, "choose"));
                    let wanted = if sampling == Sampling::All { advantages.len() } else { learn.min(advantages.len()) };
                    prop_assert!(chosen.iter().all(|(i, w)| *i < advantages.len() && w.is_finite() && *w > 0.0));
                    // Only neighbours are compared.
                    chosen.sort_by_key(|(i, _)| *i);
                    chosen.dedup_by_key(|(i, _)| *i);
                    prop_assert_eq!(chosen.len(), wanted);
                }
            }
        }
    }

    #[test]
    fn top_takes_the_largest_absolute_advantages() {
        let train = Train {
            learn: 2,
            sampling: Sampling::Top,
            ..Train::default()
        };
        let chosen = choose(
            &train,
            &[0.5, -2.0, 1.0, -0.1],
            &mut Stream::new(0, "choose"),
        );
        assert_eq!(chosen.iter().map(|(i, _)| *i).collect::<Vec<_>>(), [1, 2]);
    }

    /// An even draw needs no correction, however it is computed.
    #[test]
    fn a_uniform_draw_has_importance_one() {
        let train = Train {
            learn: 3,
            sampling: Sampling::Uniform,
            correction: true,
            ..Train::default()
        };
        for (_, importance) in choose(
            &train,
            &[0.5, -2.0, 1.0, -0.1, 0.0],
            &mut Stream::new(4, "choose"),
        ) {
            assert!((importance - 1.0).abs() < 1e-6, "{importance}");
        }
    }
}
