//! The loop around the algorithm: examines, learns, tells, saves, and stops.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use lapwing_env::Scenario;

use crate::learner::Learner;
use crate::record::directory::RunDirectory;
use crate::record::metrics::{Evaluation, now};
use crate::record::{Record, RecordError, Sink};
use crate::snapshot::Best;
use crate::state::State;
use crate::watchmen::Watchmen;
use crate::{Config, Error, checkpoint};
use lapwing_play::Progress;
use lapwing_play::evaluate::{examine, yardsticks};
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::{Episode, Player, Referee, Seat};

/// How training came to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All steps are done.
    Finished,
    /// It was asked to stop, and did after a step; it can go on from there.
    Stopped,
}

/// Trains from where the state is to the last step, with evaluations before, between and after. What it measures goes to the
/// directory and to the sinks. It saves at each evaluation, as often as the config wants, when `stop` is set, and before an
/// error is returned.
///
/// # Errors
/// If the game, the model, the device, a sink or the disk fails, or training has diverged. What was saved before stays.
pub fn train<L: Learner>(
    state: &mut State<L>,
    run: &mut RunDirectory,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<Ending, Error> {
    let mut clean = true;
    steps(state, run, sinks, progress, stop, &mut clean).inspect_err(|error| {
        // The error is what matters. Within a step, or where no number is to be trusted, what was saved last is better.
        match clean && !error.is_divergence() && save(state, run).is_ok() {
            true => progress.note(&format!("saved as it is, at step {}", state.step)),
            false => progress.note("what was saved last is kept"),
        }
    })
}

/// `clean` tells whether all that was learned is in the run's directory.
fn steps<L: Learner>(
    state: &mut State<L>,
    run: &mut RunDirectory,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
    stop: &AtomicBool,
    clean: &mut bool,
) -> Result<Ending, Error> {
    let mut watchmen = Watchmen::default();
    run.records()?.iter().for_each(|past| watchmen.recall(past));
    let mut saved = Instant::now();
    loop {
        let last = state.step >= state.config.train.steps;
        let due = last || state.config.eval.is_due(state.step);
        if due && state.evaluated != Some(state.step) {
            if state.step > 0 {
                save(state, run)?;
            }
            *clean = false;
            evaluate(state, run, sinks, progress)?;
            save(state, run)?;
            (*clean, saved) = (true, Instant::now());
        }
        if last {
            return Ok(Ending::Finished);
        }
        if stop.load(Relaxed) {
            save(state, run)?;
            return Ok(Ending::Stopped);
        }

        let updates = state.learner.updates();
        let stepped = state.learner.step(&state.config, state.step, progress);
        *clean = stepped.is_ok() || state.learner.updates() == updates;
        let (mut metrics, groups) = stepped?;
        *clean = false;
        metrics.time = now();
        let count = match state.config.eval.is_due(state.step) {
            true => state.config.record.episodes,
            false => 0,
        };
        state.step += 1;
        let mut records = vec![Record::Step(metrics.clone())];
        records.extend(state.learner.step_samples(
            state.step,
            &groups,
            kept(&state.config, count),
        )?);
        let seen = watchmen.look(&metrics, &groups, &state.config);
        records.extend(seen.into_iter().map(Record::Warning));
        keep(run, &records)?;
        *clean = true;
        tell(sinks, &records)?;
        watchmen.verdict()?;

        let config = &state.config.checkpoint;
        if config.is_due(state.step, saved.elapsed().as_secs_f64()) {
            save(state, run)?;
            saved = Instant::now();
        }
    }
}

/// How many episodes are kept whole, if a run that does not keep all keeps so many.
fn kept(config: &Config, count: usize) -> usize {
    match config.record.all_episodes {
        true => usize::MAX,
        false => count,
    }
}

/// How the policy does as it stands, and what it has learned kept if it never did better.
fn evaluate<L: Learner>(
    state: &mut State<L>,
    run: &mut RunDirectory,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
) -> Result<(), Error> {
    let (step, seats) = (state.step, state.evaluation_seats()?);
    let (scenario, referee, mut player) = state.learner.player(&state.config);
    let agents = scenario.agents();
    let place = (step, state.config.eval.seed);
    let Examined {
        mut records,
        episodes,
        score,
    } = examined(scenario, &referee, &seats, &mut *player, place, progress)?;
    drop(player);
    let count = kept(&state.config, state.config.record.episodes * agents);
    let samples = state
        .learner
        .evaluation_samples(step, &seats, &episodes, count)?;
    records.extend(samples);
    keep(run, &records)?;
    tell(sinks, &records)?;
    state.evaluated = Some(step);
    if state.best.is_none_or(|best| score > best.score) {
        state.best = Some(Best { step, score });
        let [_, best] = state.learner.places(run.path());
        state.save(&best)?;
    }
    Ok(())
}

/// How somebody did on held-out scenes.
pub(crate) struct Examined {
    /// what is told of it; before the first step, the yardsticks too
    pub records: Vec<Record>,
    pub episodes: Vec<Episode>,
    /// the mean return
    pub score: f64,
}

/// Lets the player play these seats, which follow from this seed, after so many steps.
pub(crate) fn examined(
    scenario: &dyn Scenario,
    referee: &Referee,
    seats: &[Seat],
    player: &mut dyn Player,
    (step, seed): (usize, u64),
    progress: &dyn Progress,
) -> Result<Examined, Error> {
    let started = Instant::now();
    let mut records = Vec::new();
    if step == 0 {
        let yardsticks = yardsticks(scenario, referee, seats, seed)?;
        records.push(Record::Yardsticks(yardsticks));
    }
    let episodes = examine(scenario, referee, seats, player, progress)?;
    let play = PlayMetrics::of(scenario.actions(), &episodes);
    let score = play.return_mean;
    records.push(Record::Evaluation(Evaluation {
        step,
        time: now(),
        game: scenario.name().to_owned(),
        seconds_evaluation: started.elapsed().as_secs_f64(),
        play,
    }));
    Ok(Examined {
        records,
        episodes,
        score,
    })
}

/// Writes records down, if every number in them is one.
pub(crate) fn keep(run: &mut RunDirectory, records: &[Record]) -> Result<(), RecordError> {
    records.iter().try_for_each(Record::check)?;
    records.iter().try_for_each(|record| run.record(record))
}

/// Hands records to the sinks.
pub(crate) fn tell(sinks: &mut [&mut dyn Sink], records: &[Record]) -> Result<(), RecordError> {
    let mut each = sinks.iter_mut();
    each.try_for_each(|sink| records.iter().try_for_each(|record| sink.record(record)))
}

/// Keeps what was learned, and all that it takes to go on. Where the directory was taken away, that is what is wrong.
fn save<L: Learner>(state: &State<L>, run: &RunDirectory) -> Result<(), Error> {
    run.check()?;
    write(state, run).or_else(|error| run.check().map_err(Error::from).and(Err(error)))
}

fn write<L: Learner>(state: &State<L>, run: &RunDirectory) -> Result<(), Error> {
    let snapshot = state.snapshot()?;
    checkpoint::save(
        run.path(),
        &state.config,
        &state.fingerprint,
        &snapshot,
        run.bytes()?,
    )?;
    let [last, _] = state.learner.places(run.path());
    state.save(&last)
}
