//! The loop around the value learners: examines, learns, tells, saves, and stops, as `run/trainer.rs` does for a language
//! model. Watchmen there are for replies and groups, and have nothing to look at here.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use crate::play::{Episode, Seat};
use crate::record::directory::{self, RunDirectory};
use crate::record::metrics::{PlayMetrics, StepMetrics, now};
use crate::record::sample::{Place, Purpose, Sample};
use crate::record::{Record, Sink};
use crate::run::checkpoint;
use crate::run::config::Learner;
use crate::run::snapshot::Best;
use crate::run::trainer::{Ending, Examined, examined, keep, tell};
use crate::value::player::ValuePlayer;
use crate::value::state::{Played, State};
use crate::value::{dqn, pqn};
use crate::{Error, Progress};

/// Steps in a row without a single update that was made, though some were tried, that end a run.
const MOST_DROPPED: usize = 5;

/// Trains from where the state is to the last step, with evaluations before, between and after. What it measures goes to the
/// directory and to the sinks. It saves at each evaluation, as often as the config wants, when `stop` is set, and before an
/// error is returned.
///
/// # Errors
/// If the game, the device, a sink or the disk fails, or training has diverged. What was saved before stays.
pub fn train(
    state: &mut State,
    run: &mut RunDirectory,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Ending, Error> {
    let mut saved = Instant::now();
    let mut dropped = 0;
    loop {
        let last = state.step >= state.config.train.steps;
        let due = last || state.config.eval.is_due(state.step);
        if due && state.evaluated != Some(state.step) {
            evaluate(state, run, sinks, progress)?;
            save(state, run)?;
            saved = Instant::now();
        }
        if last {
            return Ok(Ending::Finished);
        }
        if stop.load(Relaxed) {
            save(state, run)?;
            return Ok(Ending::Stopped);
        }

        let (metrics, played) = step(state, progress)?;
        dropped = match (&metrics.value, metrics.updates_dropped) {
            (None, some) if some > 0 => dropped + 1,
            _ => 0,
        };
        let examined = state.config.eval.is_due(state.step);
        state.step += 1;
        let mut records = vec![Record::Step(metrics)];
        let place = (Purpose::Training, examined);
        records.extend(samples(state, place, &played.seats, &played.episodes));
        keep(run, &records)?;
        tell(sinks, &records)?;
        if dropped >= MOST_DROPPED {
            return Err(Error::Diverged(dropped));
        }

        let config = &state.config.checkpoint;
        if config.is_due(state.step, saved.elapsed().as_secs_f64()) {
            save(state, run)?;
            saved = Instant::now();
        }
    }
}

/// One step: plays, and learns from it.
///
/// # Errors
/// If the game or the device fails.
pub fn step(state: &mut State, progress: &dyn Progress) -> Result<(StepMetrics, Played), Error> {
    let started = Instant::now();
    let mut played = state.play(progress)?;
    let seconds_rollout = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let (value, updates_dropped) = match state.config.learner {
        Learner::Pqn => pqn::learn(state, &mut played, progress)?,
        _ => dqn::learn(state, &played, progress)?,
    };
    let metrics = StepMetrics {
        step: state.step + 1,
        time: now(),
        play: PlayMetrics::of(state.scenario.actions(), &played.episodes),
        seconds_rollout,
        seconds_update: started.elapsed().as_secs_f64(),
        updates_dropped,
        value,
        ..StepMetrics::default()
    };
    Ok((metrics, played))
}

/// How the network does as it stands, and its weights kept if it never did better.
fn evaluate(
    state: &mut State,
    run: &mut RunDirectory,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
) -> Result<(), Error> {
    let (step, seats, referee) = (state.step, state.evaluation_seats()?, state.referee());
    let network = state.network.without_gradients();
    let mut player = ValuePlayer::greedy(&network, &state.shape);
    let place = (step, state.config.eval.seed);
    let Examined {
        mut records,
        episodes,
        score,
    } = examined(
        &*state.scenario,
        &referee,
        &seats,
        &mut player,
        place,
        progress,
    )?;
    let place = (Purpose::Evaluation, true);
    records.extend(samples(state, place, &seats, &episodes));
    keep(run, &records)?;
    tell(sinks, &records)?;
    state.evaluated = Some(step);
    if state.best.is_none_or(|best| score > best.score) {
        state.best = Some(Best { step, score });
        state.save_network(&directory::best_network(run.path()))?;
    }
    Ok(())
}

/// The episodes that are kept whole: all, or the first few of an evaluation and of the step after it.
fn samples(
    state: &State,
    (purpose, some): (Purpose, bool),
    seats: &[Seat],
    episodes: &[Episode],
) -> Vec<Record> {
    let (record, agents) = (&state.config.record, state.scenario.agents());
    let count = match (record.all_episodes, some) {
        (true, _) => episodes.len(),
        (false, true) => record.episodes * agents,
        (false, false) => 0,
    };
    let sample = |(number, episode): (usize, &Episode)| {
        let place = Place {
            step: state.step,
            purpose,
            game: None,
            scene: seats[number / agents].scene,
            agent: number % agents,
        };
        Record::Episode(Sample::played(episode, place, state.scenario.actions()))
    };
    let kept = episodes.iter().take(count).enumerate();
    kept.map(sample).collect()
}

/// Keeps the network, and all that it takes to go on. Where the directory was taken away, that is what is wrong.
fn save(state: &State, run: &RunDirectory) -> Result<(), Error> {
    run.check()?;
    let write = || -> Result<(), Error> {
        let (config, print) = (&state.config, state.fingerprint());
        checkpoint::save(run.path(), config, &print, &state.snapshot()?, run.bytes()?)?;
        state.save_network(&directory::network(run.path()))
    };
    write().or_else(|error| run.check().map_err(Error::from).and(Err(error)))
}
