//! `lapwing train`: a run from its config to its adapter, and what it was good for.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::doctor::self_test;
use lapwing_train::record::directory::{self, RunDirectory, Session};
use lapwing_train::record::metrics::{Evaluation, PlayMetrics, StepMetrics, now};
use lapwing_train::record::report;
use lapwing_train::record::tensorboard::EventFile;
use lapwing_train::record::{Record, Sink};
use lapwing_train::run::checkpoint;
use lapwing_train::run::config::Learner;
use lapwing_train::run::state::{Purpose, State};
use lapwing_train::run::trainer::{self, Ending};
use lapwing_train::{Error, Progress};

use super::eval::NOT_DIVIDED;
use super::{dry_run, train_network};
use crate::args;
use crate::describe;
use crate::interrupt::{self, Stopped};
use crate::out;
use crate::progress::{Steps, Terminal};
use crate::table::comparison;

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

/// The table, what was not learned if it was nothing, where it is, and the report.
pub fn conclude(
    run: RunDirectory,
    learned: impl Fn(&StepMetrics) -> bool,
    why_not: &str,
    learned_is: &str,
) -> Result<()> {
    let place = run.path().to_owned();
    let records = run.records()?;
    let mut out = out::shown();
    write!(out, "{}", before_and_after(&records))?;
    let of_steps = || {
        records.iter().filter_map(|record| match record {
            Record::Step(metrics) => Some(metrics),
            _ => None,
        })
    };
    let nothing_learned = of_steps().next().is_some() && !of_steps().any(learned);
    // Nobody works on it any more, and its page should not say so.
    drop(run);
    if nothing_learned {
        writeln!(out, "\n{why_not}")?;
    }
    writeln!(out, "\n{learned_is}. Watch it play:")?;
    let shown = out::quoted(&place.to_string_lossy());
    writeln!(out, "  {} play {shown}", program())?;
    let page = report::default_path(std::slice::from_ref(&place));
    // All is saved by now: a page that cannot be written is no failure of the training.
    match report::write(std::slice::from_ref(&place), &page) {
        Ok(_) => writeln!(
            out,
            "Its report, a page for any browser, is in {}",
            page.display()
        )?,
        Err(error) => out::note(&format!("the report could not be written: {error}")),
    }
    Ok(())
}

/// Puts back what the latest checkpoint has, and cuts off what was told after it.
fn go_on(state: &mut State, run: &mut RunDirectory, terminal: &Terminal) -> Result<(), Error> {
    let (saved, damaged) = checkpoint::latest(run.path());
    for error in &damaged {
        terminal.note(&format!("left out: {error}"));
    }
    let Some(saved) = saved else {
        // It was stopped before it was saved for the first time, or nothing that was saved is of use.
        return match damaged.into_iter().next() {
            Some(error) => Err(error.into()),
            None => Ok(run.cut([0, 0])?),
        };
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

/// What to type to go on with a run.
pub fn go_on_with(run: &Path) -> String {
    let run = out::quoted(&run.to_string_lossy());
    format!("go on with: {} train --resume {run}", program())
}

/// How the model did before and after, and at its best, between players that need none.
pub fn before_and_after(records: &[Record]) -> String {
    let evaluations = || {
        records.iter().filter_map(|record| match record {
            Record::Evaluation(evaluation) => Some(evaluation),
            _ => None,
        })
    };
    let mut rows: Vec<(String, &PlayMetrics)> = Vec::new();
    // A run of no steps is examined once.
    if let Some(before) = evaluations().next() {
        rows.push(("before training".to_owned(), &before.play));
    }
    if let Some(after) = evaluations().skip(1).last() {
        rows.push(("after training".to_owned(), &after.play));
        let score = |play: &PlayMetrics| play.return_mean;
        let best =
            evaluations().reduce(|best, other| match score(&other.play) > score(&best.play) {
                true => other,
                false => best,
            });
        let is_another = |best: &&Evaluation| best.step != after.step && best.step > 0;
        if let Some(best) = best.filter(is_another) {
            rows.push((format!("at its best (step {})", best.step), &best.play));
        }
    }
    let yardsticks = records.iter().find_map(|record| match record {
        Record::Yardsticks(yardsticks) => Some(yardsticks),
        _ => None,
    });
    yardsticks.map_or(String::new(), |yardsticks| comparison(yardsticks, &rows))
}

/// What is noted of this work on a run.
pub fn session(gpu: &Gpu, step: usize, model: &str, arguments: &args::Train) -> Session {
    let caps = gpu.caps();
    let config = match &arguments.resume {
        Some(run) => run.display().to_string(),
        None => arguments.request.config.clone(),
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

/// This program as it was called: from a build it is not on anybody's path.
fn program() -> String {
    let name = std::env::args_os().next();
    name.map_or("lapwing".to_owned(), |name| {
        out::quoted(&name.to_string_lossy())
    })
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
