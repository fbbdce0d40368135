//! The training loop: evaluates, trains, records, saves, and stops.

use std::sync::atomic::AtomicBool;

use crate::checkpoint::{CheckpointError, Saved};
use crate::health::HealthChecks;
use crate::learner::Learner;
use crate::record::directory::{self, RunDirectory};
use crate::record::metrics::{Evaluation, TestResults, now};
use crate::record::{Record, RecordError, Sink};
use crate::snapshot::{Best, Snapshot};
use crate::state::State;
use crate::warmup::{WarmupEnd, warm_up};
use crate::{Config, Error, checkpoint, ranks, samples};
use lapwing_model::{remove_temporary, write_atomically};
use lapwing_play::evaluate::baselines;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::{Progress, Referee};
use web_time::Instant;

/// How training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainingEnd {
    /// All steps are done.
    Finished,
    /// It stopped on request after the warm-up, a step, an evaluation or a test, and is saved.
    Stopped,
    /// It stopped on request in the warm-up, which will start again.
    StoppedInWarmup,
}

/// Warms up, then trains from the current step to the last, with evaluations before, between and after, and tests before
/// and after. Records go to the directory and the sinks. It saves at each evaluation, at the intervals of the config, when
/// `stop` is set, and before it returns an error.
///
/// # Errors
/// If the game, the model, the device, a sink or the disk fails, or training has diverged. What was saved before stays.
pub fn train<L: Learner>(
    state: &mut State<L>,
    run: &mut RunDirectory,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<TrainingEnd, Error> {
    match warm_up(state, run.path(), progress, stop)? {
        WarmupEnd::Skipped => {}
        WarmupEnd::Trained => save(state, run)?,
        WarmupEnd::Stopped => return Ok(TrainingEnd::StoppedInWarmup),
    }
    if let Some(learner) = state.learner.language() {
        // Those of a checkpoint or of the warm-up.
        learner.share_weights()?;
    }
    let mut clean = true;
    steps(state, run, sinks, progress, stop, &mut clean).inspect_err(|error| {
        // The first error is the one to report. After an error within a step, or with non-finite numbers, the last
        // checkpoint is better than the current state.
        match clean && !error.is_divergence() && save(state, run).is_ok() {
            true => progress.line(&format!("saved as it is, at step {}", state.step)),
            false => progress.line(match checkpoint::latest(run.path()).0 {
                Some(_) => "the last save is kept",
                None => "nothing was saved yet: --resume starts again",
            }),
        }
    })
}

/// Restores the latest readable checkpoint of a run, and removes the records after it. A process that was killed while it
/// saved may have left no weights, or old ones; they are written again. Its temporary files are removed.
///
/// # Errors
/// If no checkpoint can be read, there is none and yet records of steps, the latest is of another config or model, or the
/// disk fails.
pub fn resume<L: Learner>(
    state: &mut State<L>,
    run: &mut RunDirectory,
    progress: &dyn Progress,
) -> Result<(), Error> {
    let (saved, damaged) = checkpoint::latest(run.path());
    let is_latest = damaged.is_empty();
    for error in &damaged {
        progress.note(&format!("skipped a checkpoint: {error}"));
    }
    let saved = match (saved, damaged.into_iter().next()) {
        (Some(saved), _) => saved,
        (None, Some(error)) => return Err(error.into()),
        // The run stopped before its first checkpoint.
        (None, None) => {
            run.restart()?;
            return Ok(run.keep_config(&state.config)?);
        }
    };
    let bytes = saved.header.bytes;
    let [before, now] = [&saved.header.config.train, &state.config.train].map(|train| {
        let rate = train.lr_at(saved.header.step);
        (train.steps, rate)
    });
    if before.1 != now.1 {
        progress.note(&format!(
            "train.steps was {}, is {}: the learning rate goes on at {:.2e} instead of {:.2e}",
            before.0, now.0, now.1, before.1
        ));
    }
    let latest = snapshot_of(state, saved)?;
    let [last, best] = state.learner.paths(run.path());
    if let Some(lost) = latest.best.filter(|_| !best.exists()) {
        match Saved::read(run.path(), lost.step) {
            Ok(saved) => {
                state.restore(&snapshot_of(state, saved)?);
                state.save(&best)?;
            }
            Err(error) => progress.note(&format!("{} is lost: {error}", best.display())),
        }
    }
    state.restore(&latest);
    run.cut(bytes)?;
    run.keep_config(&state.config)?;
    // Beside a damaged checkpoint there may be later weights.
    if is_latest || !last.exists() {
        state.save(&last)?;
    }
    remove_temporary(run.path());
    remove_temporary(&directory::checkpoints(run.path()));
    Ok(())
}

pub(crate) fn snapshot_of<L: Learner>(
    state: &State<L>,
    saved: Saved,
) -> Result<Snapshot, CheckpointError> {
    let of = (&*state.model_name, &*state.fingerprint);
    saved.snapshot(&state.config, of, state.learner.parameters().names())
}

/// `clean`: whether the run directory has everything that was learned.
fn steps<L: Learner>(
    state: &mut State<L>,
    run: &mut RunDirectory,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
    stop: &AtomicBool,
    clean: &mut bool,
) -> Result<TrainingEnd, Error> {
    let mut checks = HealthChecks::of(state.learner.game().0.actions());
    run.records()?.iter().for_each(|past| checks.recall(past));
    let mut saved = Instant::now();
    loop {
        let last = state.step >= state.config.train.steps;
        let due = last || state.config.eval.is_due(state.step);
        if due && state.evaluated != Some(state.step) {
            if ranks::are_stopped(state, stop)? {
                save(state, run)?;
                return Ok(TrainingEnd::Stopped);
            }
            let begun = state.step > 0;
            if begun {
                save(state, run)?;
            }
            *clean = false;
            evaluate(state, run, sinks, progress)?;
            match begun {
                true => save_evaluation(state, run)?,
                false => save(state, run)?,
            }
            (*clean, saved) = (true, Instant::now());
        }
        let is_tested = !last && state.step > 0 || test(state, run, progress, stop)?;
        if last && is_tested {
            return Ok(TrainingEnd::Finished);
        }
        if ranks::are_stopped(state, stop)? {
            save(state, run)?;
            return Ok(TrainingEnd::Stopped);
        }

        let updates = state.learner.updates();
        let stepped = step(state, &mut checks, progress);
        *clean = stepped.is_ok() || state.learner.updates() == updates;
        let records = stepped?;
        *clean = false;
        keep(run, &records)?;
        *clean = true;
        tell(sinks, &records)?;
        checks.verdict()?;

        let config = &state.config.checkpoint;
        if config.is_due(state.step, saved.elapsed().as_secs_f64()) {
            save(state, run)?;
            saved = Instant::now();
        }
    }
}

/// Makes a training step. Returns its records: the metrics, some episodes, and warnings.
///
/// # Errors
/// If the game, the model or the device fails.
pub fn step<L: Learner>(
    state: &mut State<L>,
    checks: &mut HealthChecks,
    progress: &dyn Progress,
) -> Result<Vec<Record>, Error> {
    let (mut metrics, groups) = state.learner.step(&state.config, state.step, progress)?;
    metrics.time = now();
    let count = match state.config.eval.is_due(state.step) {
        true => state.config.record.episodes,
        false => 0,
    };
    let count = kept(&state.config, count);
    let samples = samples::of_step(&state.learner, state.step + 1, &groups, count)?;
    state.step += 1;
    let seen = checks.look(&metrics, &groups, &state.config);
    let mut records = vec![Record::Step(metrics)];
    records.extend(samples);
    records.extend(seen.into_iter().map(Record::Warning));
    Ok(records)
}

/// Returns the number of episodes to keep, given the number for runs that do not keep all.
fn kept(config: &Config, count: usize) -> usize {
    match config.record.all_episodes {
        true => usize::MAX,
        false => count,
    }
}

/// Evaluates the policy, and saves it as the best if its score is the highest so far.
fn evaluate<L: Learner>(
    state: &mut State<L>,
    run: &mut RunDirectory,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
) -> Result<(), Error> {
    let (score, records) = evaluation(state, progress)?;
    keep(run, &records)?;
    tell(sinks, &records)?;
    state.evaluated = Some(state.step);
    if state.best.is_none_or(|best| score > best.score) {
        let step = state.step;
        state.best = Some(Best { step, score });
        let [_, best] = state.learner.paths(run.path());
        state.save(&best)?;
    }
    Ok(())
}

/// Evaluates the policy. Returns the mean return and the records: before the first step those of the baselines, the
/// evaluation, and some of its episodes.
///
/// # Errors
/// If the game, the model or the device fails.
pub fn evaluation<L: Learner>(
    state: &mut State<L>,
    progress: &dyn Progress,
) -> Result<(f64, Vec<Record>), Error> {
    let (step, seats, started) = (state.step, state.evaluation_seats()?, Instant::now());
    let config = &state.config;
    let agents = state.learner.game().0.agents();
    progress.phase("evaluation", seats.len() * agents, "episodes");
    let episodes = state.learner.evaluate(config, &seats, progress)?;
    let seconds_evaluation = started.elapsed().as_secs_f64();
    let (scenario, _) = state.learner.game();
    let referee = Referee::of(scenario, config.policy.format_penalty);
    let mut records = Vec::new();
    if step == 0 {
        let baselines = baselines(scenario, &referee, &seats, config.eval.seed)?;
        records.push(Record::Baselines(baselines));
    }
    let play = PlayMetrics::of(scenario.actions(), &episodes);
    let score = play.return_mean;
    records.push(Record::Evaluation(Evaluation {
        step,
        time: now(),
        game: scenario.name().to_owned(),
        seconds_evaluation,
        play,
    }));
    let count = kept(config, config.record.episodes * agents);
    let samples = samples::of_evaluation(&state.learner, step, &seats, &episodes, count)?;
    records.extend(samples);
    Ok((score, records))
}

/// Plays the test scenes with the current weights, unless that was done. Returns whether it is done: not after a request to
/// stop.
fn test<L: Learner>(
    state: &mut State<L>,
    run: &RunDirectory,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<bool, Error> {
    let mut results = TestResults::read(run.path());
    let is_done = |tested: &Evaluation| tested.step == state.step;
    if results.sampled.iter().any(is_done) {
        return Ok(true);
    }
    if !add_test(&mut results, state, progress, stop)? {
        return Ok(false);
    }
    let text = serde_json::to_string(&results).expect("plain values");
    run.check()?;
    write_atomically(&directory::test(run.path()), text.as_bytes())?;
    Ok(true)
}

/// Plays the test scenes with the current weights, sampled and greedy, and adds the results. Those before the first step
/// stay, others are replaced. Returns whether all is played: not if `stop` is set before a part.
///
/// # Errors
/// If the game, the model or the device fails.
pub fn add_test<L: Learner>(
    results: &mut TestResults,
    state: &mut State<L>,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<bool, Error> {
    let (step, mut config) = (state.step, state.config.clone());
    let (seed, (scenario, scenes)) = (config.eval.seed, state.learner.game());
    let seats = scenes.test(scenario, seed, config.eval.episodes)?;
    let referee = Referee::of(scenario, config.policy.format_penalty);
    results.baselines = baselines(scenario, &referee, &seats, seed)?;
    let count = seats.len() * scenario.agents();
    for tested in [&mut results.sampled, &mut results.greedy] {
        if ranks::are_stopped(state, stop)? {
            return Ok(false);
        }
        let started = Instant::now();
        progress.phase("test", count, "episodes");
        let episodes = state.learner.evaluate(&config, &seats, progress)?;
        let seconds_evaluation = started.elapsed().as_secs_f64();
        let (scenario, _) = state.learner.game();
        // Results of the end of a shorter run.
        tested.retain(|tested| tested.step == 0);
        tested.push(Evaluation {
            step,
            time: now(),
            game: scenario.name().to_owned(),
            seconds_evaluation,
            play: PlayMetrics::of(scenario.actions(), &episodes),
        });
        if !config.learner.has_language() || config.eval.temperature == 0.0 {
            break;
        }
        config.eval.temperature = 0.0;
    }
    Ok(true)
}

/// Writes records, if all their numbers are finite.
fn keep(run: &mut RunDirectory, records: &[Record]) -> Result<(), RecordError> {
    records.iter().try_for_each(Record::check)?;
    records.iter().try_for_each(|record| run.record(record))
}

/// Passes records to the sinks.
fn tell(sinks: &mut [&mut dyn Sink], records: &[Record]) -> Result<(), RecordError> {
    let mut each = sinks.iter_mut();
    each.try_for_each(|sink| records.iter().try_for_each(|record| sink.record(record)))
}

/// Saves the trained weights and a checkpoint. If the directory was removed, the error says so.
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
    let [last, _] = state.learner.paths(run.path());
    state.save(&last)
}

/// Adds the evaluation to the checkpoint of this step, whose weights have not changed since.
fn save_evaluation<L: Learner>(state: &State<L>, run: &RunDirectory) -> Result<(), Error> {
    run.check()?;
    let evaluation = checkpoint::Evaluated {
        step: state.step,
        evaluated: state.evaluated,
        best: state.best,
        bytes: run.bytes()?,
    };
    Ok(checkpoint::save_evaluation(
        run.path(),
        &state.config,
        &evaluation,
    )?)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::state::RunPurpose;

    const WEIGHTS: &str = "adapter_model.safetensors";

    /// Starts or resumes the run in this directory, as the program does.
    fn train_to(steps: usize, dir: &Path) {
        let never = StopIn::phase(usize::MAX);
        assert_eq!(train_until(steps, dir, &never), TrainingEnd::Finished);
    }

    /// Asks a run to stop in one of its phases, which count from 1.
    struct StopIn {
        phase: usize,
        begun: Cell<usize>,
        stop: AtomicBool,
    }

    impl StopIn {
        fn phase(phase: usize) -> StopIn {
            StopIn {
                phase,
                begun: Cell::new(0),
                stop: AtomicBool::new(false),
            }
        }
    }

    impl Progress for StopIn {
        fn phase(&self, _: &'static str, _: usize, _: &'static str) {
            self.begun.set(self.begun.get() + 1);
            self.stop.store(self.begun.get() >= self.phase, Relaxed);
        }
    }

    fn train_until(steps: usize, dir: &Path, until: &StopIn) -> TrainingEnd {
        let settings = [
            &format!("train.steps={steps}"),
            "train.groups=2",
            "train.group_size=8",
            // The rate of a step does not depend on the number of steps.
            "train.lr_end=1",
            // Entropy is below the band, so each step learns, also if all returns are equal.
            "train.entropy_band=[1.5,100.0]",
            "eval.episodes=4",
            "eval.every=2",
        ];
        let config = Config::load("frozen-lake", &settings.map(str::to_owned)).unwrap();
        let gpu = lapwing_tensor::check::gpu();
        let mut state = State::new(&gpu, None, config, RunPurpose::Train, &()).unwrap();
        let mut run = match dir.exists() {
            false => RunDirectory::create(dir, &state.config).unwrap(),
            true => {
                let mut run = RunDirectory::open(dir).unwrap();
                resume(&mut state, &mut run, &()).unwrap();
                run
            }
        };
        train(&mut state, &mut run, &mut [], until, &until.stop).unwrap()
    }

    fn copy(from: &Path, to: &Path) {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (path, to) = (
                entry.as_ref().unwrap().path(),
                to.join(entry.unwrap().file_name()),
            );
            match path.is_dir() {
                true => copy(&path, &to),
                false => fs::copy(path, to).map(drop).unwrap(),
            }
        }
    }

    /// Returns everything that a run leaves, except for times.
    pub(crate) fn left(dir: &Path) -> (Vec<Vec<u8>>, Vec<serde_json::Value>) {
        let weights = [directory::adapter(dir), directory::best(dir)];
        let weights = weights.map(|dir| fs::read(dir.join(WEIGHTS)).unwrap());
        let mut lines = Vec::new();
        for path in [directory::metrics(dir), directory::episodes(dir)] {
            for line in fs::read_to_string(path).unwrap().lines() {
                let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
                let is_time = |key: &str| key == "time" || key.starts_with("seconds_");
                line.as_object_mut().unwrap().retain(|key, _| !is_time(key));
                lines.push(line);
            }
        }
        let tests = TestResults::read(dir);
        lines.push(serde_json::to_value(tests.baselines).unwrap());
        for test in tests.sampled.into_iter().chain(tests.greedy) {
            lines.push(serde_json::to_value((test.step, test.play)).unwrap());
        }
        (weights.to_vec(), lines)
    }

    /// A process that was killed between the two renames of a save, or before them, after its last checkpoint.
    #[test]
    fn resuming_makes_lost_and_old_weights_again() {
        let home = tempfile::tempdir().unwrap();
        let run = home.path().join("run");
        train_to(2, &run);
        let old = fs::read(directory::adapter(&run).join(WEIGHTS)).unwrap();
        train_to(4, &run);
        let whole = left(&run);
        for lost in [directory::adapter(&run), directory::best(&run)] {
            let aside = run.join(".lapwing-Aa0");
            fs::create_dir(&aside).unwrap();
            fs::rename(&lost, aside.join("old")).unwrap();
            fs::write(directory::checkpoints(&run).join(".lapwing-Bb1"), "half").unwrap();
            train_to(4, &run);
            assert!(left(&run) == whole, "{}", lost.display());
            for folder in [&run, &directory::checkpoints(&run)] {
                let mut names = fs::read_dir(folder)
                    .unwrap()
                    .map(|e| e.unwrap().file_name());
                assert!(!names.any(|name| name.to_string_lossy().starts_with('.')));
            }
        }
        fs::write(directory::adapter(&run).join(WEIGHTS), old).unwrap();
        train_to(4, &run);
        assert!(left(&run) == whole);
    }

    #[test]
    fn a_run_that_is_stopped_in_any_phase_ends_as_if_it_was_not() {
        let home = tempfile::tempdir().unwrap();
        let [whole, stopped] = ["whole", "stopped"].map(|name| home.path().join(name));
        train_to(1, &whole);
        // An evaluation and two tests, a rollout and an update, an evaluation and two tests.
        for phase in 1..=8 {
            let until = StopIn::phase(phase);
            let dir = stopped.join(phase.to_string());
            let ended = train_until(1, &dir, &until);
            // A step is finished; otherwise the phase in progress is the last.
            let last = if phase == 4 { 5 } else { phase };
            assert_eq!(until.begun.get(), last);
            assert_eq!(ended == TrainingEnd::Finished, phase == 8, "{phase}");
            train_to(1, &dir);
            assert!(left(&dir) == left(&whole), "stopped in phase {phase}");
        }
    }

    /// A run that stopped before its evaluation was recorded, after that, or whose checkpoint was damaged later.
    #[test]
    fn a_run_that_is_stopped_around_an_evaluation_ends_as_if_it_was_not() {
        let home = tempfile::tempdir().unwrap();
        let [whole, noted, lost, damaged] =
            ["whole", "noted", "lost", "damaged"].map(|name| home.path().join(name));
        train_to(4, &whole);
        train_to(2, &noted);
        copy(&noted, &lost);
        copy(&noted, &damaged);
        let evaluation = |run: &Path| directory::checkpoints(run).join("evaluation.json");
        let before = checkpoint::latest(&noted).0.unwrap().header;
        assert_eq!((before.step, before.evaluated), (2, Some(2)));
        fs::remove_file(evaluation(&lost)).unwrap();
        let before = checkpoint::latest(&lost).0.unwrap().header;
        assert_eq!((before.step, before.evaluated), (2, Some(0)));
        let latest = directory::checkpoints(&damaged).join("step-000002.safetensors");
        fs::write(&latest, "notes").unwrap();
        for run in [&noted, &lost, &damaged] {
            train_to(4, run);
            assert!(left(run) == left(&whole), "{}", run.display());
        }

        // An evaluation belongs to the checkpoint that it evaluated, and not to a later one of the same step.
        let (state, model) = (checkpoint::latest(&whole).0.unwrap(), "another");
        let (config, bytes) = (state.header.config.clone(), state.header.bytes);
        let names = ["none"; 0];
        let header = state.header.clone();
        assert_eq!(header.evaluated, Some(4));
        let of = ("model", &*header.model);
        let snapshot = state.snapshot(&config, of, names.into_iter()).unwrap();
        checkpoint::save(&whole, &config, model, &snapshot, bytes).unwrap();
        assert!(!evaluation(&whole).exists());
    }
}
