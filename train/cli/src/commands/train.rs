//! `lapwing train`: a run from its config to its adapter, and what it was good for.

use std::io::Write;

use anyhow::Result;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::Error;
use lapwing_train::doctor::self_test;
use lapwing_train::record::Sink;
use lapwing_train::record::directory::{self, RunDirectory};
use lapwing_train::record::metrics::StepMetrics;
use lapwing_train::record::tensorboard::EventFile;
use lapwing_train::run::config::Learner;
use lapwing_train::run::state::{Purpose, State};
use lapwing_train::run::trainer::{self, Ending};

use super::eval::NOT_DIVIDED;
use super::told::{before_and_after, conclude, go_on_with, latest, session};
use super::{dry_run, train_network};
use crate::args;
use crate::describe;
use crate::interrupt::{self, Stopped};
use crate::out;
use crate::progress::{Steps, Terminal};

/// Trains, and compares the model before and after with players that need none.
pub fn train(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Train,
) -> Result<()> {
    let stop = interrupt::listen(interrupt::STEP_IS_SAVED)?;
    let config = arguments.config()?;
    // Before anything is loaded: nobody waits for a refusal.
    let opened = match (&arguments.resume, &arguments.out) {
        (Some(run), _) => Some(RunDirectory::open(run)?),
        (None, Some(out)) => directory::check_free(out).map(|()| None)?,
        (None, None) => None,
    };
    let gpu = open_gpu()?;
    self_test(&gpu)?;
    let terminal = Terminal::new();
    if config.learner != Learner::MsGrpo {
        return train_network::train(&gpu, config, arguments, opened, terminal, stop);
    }
    let mut state = State::new(&gpu, config.clone(), Purpose::Train, &terminal)?;
    if arguments.dry_run {
        drop(terminal);
        let introduction = introduction(&state, &gpu);
        return dry_run::show(&mut state, arguments.out.as_deref(), &introduction);
    }
    let mut run = match opened {
        Some(mut run) => {
            go_on(&mut state, &mut run, &terminal)?;
            run
        }
        // Only now: what fails above leaves nothing behind.
        None => RunDirectory::create(arguments.out.as_deref(), &state.config)?,
    };
    let place = run.path().to_owned();
    run.begin(&session(&gpu, state.step, &state.model_name, arguments))?;

    let introduction = introduction(&state, &gpu);
    terminal.line(&format!("{introduction}, kept in {}", place.display()));
    if !state.world().scenes.divided() {
        terminal.line(NOT_DIVIDED);
    }
    let mut steps = Steps {
        terminal: &terminal,
        total: config.train.steps,
    };
    let mut events = EventFile::of_run(&place, &config)?;
    let mut sinks: Vec<&mut dyn Sink> = vec![&mut steps];
    sinks.extend(events.as_mut().map(|events| events as &mut dyn Sink));
    let go_on = go_on_with(&place);
    let ending = trainer::train(&mut state, &mut run, &mut sinks, &terminal, stop)
        .inspect_err(|_| terminal.line(&go_on))?;
    // The bars go before the table comes.
    drop(terminal);
    let (steps, total) = (state.step, config.train.steps);
    if ending == Ending::Stopped {
        write!(out::shown(), "{}", before_and_after(&run.records()?))?;
        return Err(Stopped::run(steps, total, &go_on).into());
    }
    let learned = |metrics: &StepMetrics| metrics.learned.is_some();
    // A table and a path would look like success.
    let why = "Nothing was learned: in no step did the returns of a group differ (docs/watchmen.md, no-variance).";
    let (what, kept) = match state.trains_model() {
        false => ("adapter", directory::adapter(&place)),
        true => ("model", directory::model(&place)),
    };
    let learned_is = format!("The {what} is in {}", kept.display());
    conclude(run, learned, why, &learned_is)
}

/// Puts back what the latest checkpoint has, and cuts off what was told after it.
fn go_on(state: &mut State, run: &mut RunDirectory, terminal: &Terminal) -> Result<(), Error> {
    let Some(saved) = latest(run, terminal)? else {
        return Ok(());
    };
    let bytes = saved.header.bytes;
    let parameters = state.parameters.as_ref().expect("a run that trains");
    let snapshot = saved.snapshot(
        &state.config,
        (&state.model_name, &state.fingerprint),
        parameters.names(),
    )?;
    state.restore(&snapshot);
    run.cut(bytes)?;
    Ok(run.keep_config(&state.config)?)
}

/// What is about to happen, and on what.
fn introduction(state: &State, gpu: &Gpu) -> String {
    let (config, train) = (&state.config, &state.config.train);
    let from = match state.step {
        0 => String::new(),
        step => format!(", from step {step} on"),
    };
    let whole = match state.trains_model() {
        true => ", with all weights of the model",
        false => "",
    };
    let software = match gpu.is_software() {
        true => " (a software adapter: no GPU is used)",
        false => "",
    };
    format!(
        "{}: {} steps of {} x {} episodes{from}, {}{whole}; on {}{software}",
        config.game.name,
        train.steps,
        train.groups,
        train.group_size,
        describe::sampling(train),
        gpu.caps().name
    )
}
