//! Turn-level PPO (Turn-PPO, arXiv 2512.17008): as [`ms_grpo`](crate::ms_grpo), with a [`critic`] to tell what
//! a turn was worth.
//!
//! ```text
//! play  ->  value  ->  weigh  ->  choose  ->  learn  ->  the critic learns
//! ```
//!
//! What differs from [`ms_grpo::step`](crate::ms_grpo::step) is that the states are valued before the turns are
//! weighed, that the critic learns too, and that in the first steps (`critic.warmup`) nobody else does. The policy learns
//! as it does there: passes, minibatches, ratio and clip are those of `[train]`, episodes are chosen as `train.sampling`
//! says, and advantages are divided as `credit.normalise` does.

use std::time::Instant;

use crate::LearnError;
use crate::critic;
use crate::critic::States;
use crate::group::{Group, choose, effective_episodes, entropy_weight, weigh};
use crate::language::{LanguageLearner, Options};
use crate::measure::measured;
use crate::metrics::StepMetrics;
use crate::ms_grpo::learn;
use crate::rollout::rollout;
use lapwing_play::Progress;

/// One step of training: play, value, weigh, choose, learn.
///
/// # Errors
/// If the game, the model or the device fails, or a value is no finite number.
///
/// # Panics
/// If the state has no critic.
pub fn step(
    learner: &mut LanguageLearner,
    options: &Options<'_>,
    step: usize,
    progress: &dyn Progress,
) -> Result<(StepMetrics, Vec<Group>), LearnError> {
    // Play, as MS-GRPO does.
    let started = Instant::now();
    let computed_before = learner.policy.arena.computed();
    let rollout = rollout(learner, options, step, progress)?;
    let tokens_rollout = learner.policy.arena.computed() - computed_before;
    let seconds_rollout = started.elapsed().as_secs_f64();

    // What each state is worth, by the policy and the critic as they stand.
    let started = Instant::now();
    let mut groups = rollout.groups;
    let limit = options.train.tokens_per_batch;
    let states = States::of(
        &groups,
        &mut learner.worlds,
        &learner.policy,
        limit,
        progress,
    )?;
    let critic = learner.critic.as_ref().expect("a run with a critic");
    for (group, values) in groups.iter_mut().zip(critic::values(critic, &states)?) {
        group.values = values;
    }
    let seconds_values = started.elapsed().as_secs_f64();

    let measured = measured(learner, options, step, &groups)?;

    // Weigh each turn by that, and choose which episodes to learn from: none while only the critic learns.
    let started = Instant::now();
    weigh(&mut groups, options);
    let warm = step < options.critic.warmup;
    if !warm {
        choose(&mut groups, options.train, step);
    }

    // The policy learns, as in MS-GRPO; then the critic, from every turn.
    let (learned, updates_dropped) = learn(learner, options, step, &groups, progress)?;
    let critic = learner.critic.as_mut().expect("a run with a critic");
    let valued = critic::learn(critic, &groups, &states, options);
    let skipped = groups.iter().filter(|g| g.chosen.is_empty()).count();
    let metrics = StepMetrics {
        step: step + 1,
        play: rollout.play,
        games: rollout.games,
        tokens_played: rollout.tokens_played,
        tokens_computed: tokens_rollout
            + states.tokens_computed
            + learned.map_or(0, |l| l.tokens_computed),
        seconds_rollout,
        seconds_update: seconds_values + started.elapsed().as_secs_f64(),
        groups_skipped: if warm { 0 } else { skipped },
        updates_dropped,
        temperature: (options.policy.spread > 0.0).then_some(learner.temperature),
        entropy_weight: entropy_weight(&groups),
        effective_episodes: effective_episodes(&groups),
        measured,
        learned,
        critic: Some(valued),
        ..StepMetrics::default()
    };
    Ok((metrics, groups))
}
