//! `lapwing train` with a learner that reads no words: a run of the same directory, records and table.

use std::io::Write;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use lapwing_tensor::Gpu;
use lapwing_train::record::Sink;
use lapwing_train::record::directory::{self, RunDirectory};
use lapwing_train::record::metrics::StepMetrics;
use lapwing_train::record::tensorboard::EventFile;
use lapwing_train::run::trainer::Ending;
use lapwing_train::value::state::State;
use lapwing_train::value::trainer;
use lapwing_train::{Config, Error};

use super::eval::NOT_DIVIDED;
use super::told::{before_and_after, conclude, go_on_with, latest, session};
use crate::args;
use crate::interrupt::Stopped;
use crate::out;
use crate::progress::{Steps, Terminal};

/// Trains, and compares the network before and after with players that need none.
pub fn train(
    gpu: &Gpu,
    config: Config,
    arguments: &args::Train,
    opened: Option<RunDirectory>,
    terminal: Terminal,
    stop: &AtomicBool,
) -> Result<()> {
    let mut state = State::new(gpu, config)?;
    let introduction = |state: &State| introduction(state, gpu);
    if arguments.dry_run {
        drop(terminal);
        let (config, seed) = (&state.config, state.config.train.seed);
        let place = match &arguments.out {
            Some(path) => path.display().to_string(),
            None => format!(
                "runs/{}-{seed}, or the next number that is free",
                config.name
            ),
        };
        writeln!(
            out::shown(),
            "would train {}, kept in {place}",
            introduction(&state)
        )?;
        return Ok(());
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
    run.begin(&session(
        gpu,
        state.step,
        state.config.learner.name(),
        arguments,
    ))?;
    terminal.line(&format!(
        "{}, kept in {}",
        introduction(&state),
        place.display()
    ));
    if !state.scenes.divided() {
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
    let go_on = go_on_with(&place);
    let ending = trainer::train(&mut state, &mut run, &mut sinks, &terminal, stop)
        .inspect_err(|_| terminal.line(&go_on))?;
    // The bars go before the table comes.
    drop(terminal);
    if ending == Ending::Stopped {
        write!(out::shown(), "{}", before_and_after(&run.records()?))?;
        return Err(Stopped::run(state.step, total, &go_on).into());
    }
    let learned = |metrics: &StepMetrics| metrics.value.is_some();
    let why = "Nothing was learned: there were never as many turns as dqn.start wants.";
    let network = directory::network(&place);
    conclude(
        run,
        learned,
        why,
        &format!("The network is in {}", network.display()),
    )
}

/// Puts back what the latest checkpoint has, and cuts off what was told after it.
fn go_on(state: &mut State, run: &mut RunDirectory, terminal: &Terminal) -> Result<(), Error> {
    let Some(saved) = latest(run, terminal)? else {
        return Ok(());
    };
    let (bytes, print) = (saved.header.bytes, state.fingerprint());
    let of = (state.config.learner.name(), &*print);
    let snapshot = saved.snapshot(&state.config, of, state.parameters.names())?;
    state.restore(&snapshot);
    run.cut(bytes)?;
    Ok(run.keep_config(&state.config)?)
}

/// What is about to happen, and on what.
fn introduction(state: &State, gpu: &Gpu) -> String {
    let config = &state.config;
    let from = match state.step {
        0 => String::new(),
        step => format!(", from step {step} on"),
    };
    let software = match gpu.is_software() {
        true => " (a software adapter: no GPU is used)",
        false => "",
    };
    format!(
        "{}: {} steps of {} episodes{from}, by {}: a network of {} weights that sees {}; on {}{software}",
        config.game.name,
        config.train.steps,
        config.value.episodes,
        config.learner.name(),
        state.network.size(),
        state.shape.describe(),
        gpu.caps().name
    )
}
