//! `lapwing train`: a run from its config to its adapter, with a comparison at the end.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use indicatif::HumanCount;
use lapwing_lab::doctor::self_test;
use lapwing_lab::report;
use lapwing_lab::tensorboard::EventFile;
use lapwing_learn::metrics::StepMetrics;
use lapwing_learn::value::learner::NetworkLearner;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::{AgentView, Progress};
use lapwing_tensor::Gpu;
use lapwing_train::learner::Learner;
use lapwing_train::record::directory::{self, RunDirectory, Session};
use lapwing_train::record::metrics::now;
use lapwing_train::record::{Record, Sink};
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::trainer::{self, TrainingEnd};
use lapwing_train::{Error, checkpoint};

use super::eval::NOT_DIVIDED;
use crate::args::{DeviceArgs, TrainArgs};
use crate::comparison::comparison;
use crate::hub::hub;
use crate::interrupt::{self, Stopped};
use crate::progress::{Steps, Terminal};
use crate::{describe, folders, out, records};

/// Trains, and compares the model before and after with players that need none.
pub fn train(device: DeviceArgs, arguments: &TrainArgs) -> Result<()> {
    let stop = interrupt::listen(interrupt::STEP_IS_SAVED)?;
    let config = arguments.config()?;
    // Checked before anything is loaded.
    let resumed = arguments.resume.as_deref().map(RunDirectory::open);
    let resumed = resumed.transpose()?;
    if let Some(out) = &arguments.out {
        directory::check_free(out)?;
    }
    let gpu = device.open()?;
    self_test(&gpu, folders::cache().as_deref())?;
    let terminal = Terminal::new();
    if !config.learner.has_language() {
        let state = State::network(&gpu, config)?;
        return run(state, arguments, resumed, &gpu, terminal, stop);
    }
    let state = State::new(&gpu, hub(), config, RunPurpose::Train, &terminal)?;
    run(state, arguments, resumed, &gpu, terminal, stop)
}

/// The messages about a learner.
trait Describe: Learner + Sized {
    /// Returns the noun for its weights.
    fn noun(state: &State<Self>) -> &'static str;
    /// Whether a step changed its weights.
    fn has_learned(step: &StepMetrics) -> bool;
    /// Explains a run in which no step did.
    const NOTHING_LEARNED: &str;
    /// Describes a step and what is trained.
    fn introduction(state: &State<Self>) -> String;
    /// Prints an example of its input, and the number of parameters.
    fn example(state: &mut State<Self>) -> Result<()>;
}

impl Describe for lapwing_learn::language::LanguageLearner {
    const NOTHING_LEARNED: &str = "Nothing was learned: in no step did the returns of a group differ (docs/health-checks.md, no-variance).";

    fn noun(state: &State) -> &'static str {
        match state.trains_model() {
            false => "adapter",
            true => "model",
        }
    }

    fn has_learned(step: &StepMetrics) -> bool {
        step.learned.is_some()
    }

    fn introduction(state: &State) -> String {
        let train = &state.config.train;
        let whole = match state.trains_model() {
            true => ", with all weights of the model",
            false => "",
        };
        let (groups, size, sampling) = (train.groups, train.group_size, describe::sampling(train));
        format!("{groups} x {size} episodes, {sampling}{whole}")
    }

    fn example(state: &mut State) -> Result<()> {
        let seat = state.evaluation_seats()?[0];
        let game = state.world().scenario.start(seat.scene, seat.luck)?;
        let observation = game.observe(0)?;
        let seen = AgentView::first(&observation);
        let prompts = &mut state.learner.worlds[0].prompts;
        let (text, count) = (prompts.text(&seen)?, prompts.ids(&seen)?.len());
        let parameters = state.learner.parameters.as_ref();
        let parameters = HumanCount(parameters.expect("a run that trains").count());
        let of = match state.trains_model() {
            false => "of an adapter",
            true => "all of the model's",
        };
        let mut out = out::shown();
        writeln!(out, "--- a prompt of {count} tokens\n{text}\n---")?;
        writeln!(out, "would train {parameters} parameters, {of}")?;
        Ok(())
    }
}

impl Describe for NetworkLearner {
    const NOTHING_LEARNED: &str =
        "Nothing was learned: there were never as many turns as dqn.start requires.";

    fn noun(_: &State<Self>) -> &'static str {
        "network"
    }

    fn has_learned(step: &StepMetrics) -> bool {
        step.value.is_some()
    }

    fn introduction(state: &State<Self>) -> String {
        let (config, learner) = (&state.config, &state.learner);
        format!(
            "{} episodes, by {}: a network of {} weights with {} as input",
            config.value.episodes,
            config.learner.name(),
            learner.size(),
            learner.fingerprint()
        )
    }

    fn example(_: &mut State<Self>) -> Result<()> {
        Ok(())
    }
}

/// Describes the run in one line.
fn introduction<L: Describe>(state: &State<L>, gpu: &Gpu) -> String {
    let (game, steps) = (&state.config.game.name, state.config.train.steps);
    let from = match state.step {
        0 => String::new(),
        step => format!(", from step {step} on"),
    };
    let software = match gpu.is_software() {
        true => " (a software device: no GPU is used)",
        false => "",
    };
    let (device, learner) = (&gpu.caps().name, L::introduction(state));
    format!("{game}: {steps} steps of {learner}{from}; on {device}{software}")
}

/// Starts or resumes a run.
fn run<L: Describe>(
    mut state: State<L>,
    arguments: &TrainArgs,
    resumed: Option<RunDirectory>,
    gpu: &Gpu,
    terminal: Terminal,
    stop: &AtomicBool,
) -> Result<()> {
    if arguments.dry_run {
        drop(terminal);
        return dry_run(state, gpu, arguments);
    }
    let mut run = match resumed {
        Some(mut run) => {
            resume(&mut state, &mut run, &terminal)?;
            run
        }
        // Created last: an error above leaves nothing behind.
        None => match &arguments.out {
            Some(out) => RunDirectory::create(out, &state.config)?,
            None => RunDirectory::create_in("runs".as_ref(), &state.config)?,
        },
    };
    let place = run.path().to_owned();
    run.begin(&session(gpu, state.step, &state.model_name, arguments))?;
    let introduction = introduction(&state, gpu);
    terminal.line(&format!("{introduction}, kept in {}", place.display()));
    if !state.learner.game().1.divided() {
        terminal.line(NOT_DIVIDED);
    }
    let total = state.config.train.steps;
    let mut steps = Steps {
        terminal: &terminal,
        total,
    };
    let mut events = EventFile::of_run(&place, &state.config)?;
    let mut sinks: Vec<&mut dyn Sink> = vec![&mut steps];
    sinks.extend(events.as_mut().map(|events| events as &mut dyn Sink));
    let shown_place = out::quoted(&place.to_string_lossy());
    let hint = format!("resume with: {} train --resume {shown_place}", program());
    let ending = trainer::train(&mut state, &mut run, &mut sinks, &terminal, stop)
        .inspect_err(|_| terminal.line(&hint))?;
    // Removes the progress bars.
    drop(terminal);
    let records = run.records()?;
    write!(out::shown(), "{}", before_and_after(&records))?;
    if ending == TrainingEnd::Stopped {
        let step = state.step;
        let text = format!(" at step {step} of {total}, and saved; {hint}");
        return Err(Stopped(text).into());
    }
    // Unlocks the run, so that the report shows it as finished.
    drop(run);
    conclude(&state, &records, &place)
}

fn dry_run<L: Describe>(mut state: State<L>, gpu: &Gpu, arguments: &TrainArgs) -> Result<()> {
    L::example(&mut state)?;
    let (name, seed) = (&state.config.name, state.config.train.seed);
    let place = match &arguments.out {
        Some(path) => path.display().to_string(),
        None => format!("runs/{name}-{seed}, or the next free number"),
    };
    let introduction = introduction(&state, gpu);
    writeln!(out::shown(), "would train {introduction}, kept in {place}")?;
    Ok(())
}

/// Restores the latest readable checkpoint, and removes the records after it.
fn resume<L: Learner>(
    state: &mut State<L>,
    run: &mut RunDirectory,
    terminal: &Terminal,
) -> Result<(), Error> {
    let (saved, damaged) = checkpoint::latest(run.path());
    for error in &damaged {
        terminal.note(&format!("skipped: {error}"));
    }
    let saved = match (saved, damaged.into_iter().next()) {
        (Some(saved), _) => saved,
        (None, Some(error)) => return Err(error.into()),
        // The run stopped before its first checkpoint.
        (None, None) => return Ok(run.cut([0, 0])?),
    };
    let (bytes, names) = (saved.header.bytes, state.learner.names());
    let of = (&*state.model_name, &*state.fingerprint);
    let snapshot = saved.snapshot(&state.config, of, names.iter().map(String::as_str))?;
    state.restore(&snapshot);
    run.cut(bytes)?;
    Ok(run.keep_config(&state.config)?)
}

/// Prints where the weights and the report are.
fn conclude<L: Describe>(state: &State<L>, records: &[Record], run: &Path) -> Result<()> {
    let mut out = out::shown();
    if records::steps(records).next().is_some() && !records::steps(records).any(L::has_learned) {
        writeln!(out, "\n{}", L::NOTHING_LEARNED)?;
    }
    let ([last, _], noun) = (state.learner.paths(run), L::noun(state));
    writeln!(out, "\nThe {noun} is in {}. Watch it play:", last.display())?;
    let shown = out::quoted(&run.to_string_lossy());
    writeln!(out, "  {} play {shown}", program())?;
    let runs = [run.to_owned()];
    let page = report::default_path(&runs);
    match report::write(&runs, &page) {
        Ok(_) => writeln!(out, "Its report is in {}", page.display())?,
        // The training has succeeded, and all is saved.
        Err(error) => out::note(&format!("the report could not be written: {error}")),
    }
    Ok(())
}

/// Returns a table of the model before and after training, and at its best, with the baselines.
fn before_and_after(records: &[Record]) -> String {
    let mut rows: Vec<(String, &PlayMetrics)> = Vec::new();
    let evaluations = || records::evaluations(records);
    if let Some(before) = evaluations().next() {
        rows.push(("before training".to_owned(), &before.play));
    }
    // A run of no steps has one evaluation.
    if let Some(after) = evaluations().skip(1).last() {
        rows.push(("after training".to_owned(), &after.play));
        // The earliest of equal ones.
        let best = evaluations().reduce(|best, other| {
            match other.play.return_mean > best.play.return_mean {
                true => other,
                false => best,
            }
        });
        if let Some(best) = best.filter(|best| best.step != after.step && best.step > 0) {
            rows.push((format!("at its best (step {})", best.step), &best.play));
        }
    }
    records::baselines(records).map_or(String::new(), |baselines| comparison(baselines, &rows))
}

/// Returns the record of this session.
fn session(gpu: &Gpu, step: usize, model: &str, arguments: &TrainArgs) -> Session {
    let caps = gpu.caps();
    let config = match &arguments.resume {
        Some(run) => run.display().to_string(),
        None => arguments.config.config.clone(),
    };
    Session {
        time: now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        step,
        device: caps.name.clone(),
        driver: caps.driver.clone(),
        backend: caps.backend.clone(),
        software: gpu.is_software(),
        config,
        model: model.to_owned(),
    }
}

/// Returns the name by which this program was called, which may not be on the PATH.
fn program() -> String {
    let name = std::env::args_os().next();
    name.map_or("lapwing".to_owned(), |name| {
        out::quoted(&name.to_string_lossy())
    })
}
