//! `lapwing train`: a run from its config to its adapter, and what it was good for.

use std::io::Write;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use lapwing_lab::doctor::self_test;
use lapwing_lab::tensorboard::EventFile;
use lapwing_learn::config::LearnerKind;
use lapwing_learn::metrics::StepMetrics;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::Error;
use lapwing_train::record::Sink;
use lapwing_train::record::directory::{self, RunDirectory};
use lapwing_train::state::{Purpose, State};
use lapwing_train::trainer;
use lapwing_train::trainer::Ending;

use super::dry_run;
use super::eval::NOT_DIVIDED;
use super::told::{before_and_after, conclude, go_on_with, latest, session};
use crate::args;
use crate::describe;
use crate::folders;
use crate::hub::hub;
use crate::interrupt::{self, Stopped};
use crate::out;
use crate::progress::{Steps, Terminal};
use lapwing_learn::value::learner::NetworkLearner;
use lapwing_train::learner::Learner;

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
    self_test(&gpu, folders::cache().as_deref())?;
    let terminal = Terminal::new();
    let work = Work {
        arguments,
        opened,
        gpu: &gpu,
        terminal,
        stop,
    };
    if config.learner != LearnerKind::MsGrpo {
        let state = State::network(&gpu, config)?;
        if arguments.dry_run {
            drop(work.terminal);
            let place = dry_run::place(&state.config, arguments.out.as_deref());
            let introduction = network_introduction(&state, &gpu);
            writeln!(out::shown(), "would train {introduction}, kept in {place}")?;
            return Ok(());
        }
        let what = Learned {
            name: "network",
            is_in: |metrics| metrics.value.is_some(),
            nothing: "Nothing was learned: there were never as many turns as dqn.start wants.",
        };
        return work.run(state, network_introduction, &what);
    }
    let mut state = State::new(&gpu, hub(), config, Purpose::Train, &work.terminal)?;
    if arguments.dry_run {
        drop(work.terminal);
        let introduction = introduction(&state, &gpu);
        return dry_run::show(&mut state, arguments.out.as_deref(), &introduction);
    }
    let what = Learned {
        name: match state.trains_model() {
            false => "adapter",
            true => "model",
        },
        is_in: |metrics| metrics.learned.is_some(),
        // A table and a path would look like success.
        nothing: "Nothing was learned: in no step did the returns of a group differ (docs/health-checks.md, no-variance).",
    };
    work.run(state, introduction, &what)
}

/// What a run learns, as its closing text names it.
struct Learned {
    name: &'static str,
    /// whether a step learned anything
    is_in: fn(&StepMetrics) -> bool,
    /// the closing text of a run in which no step did
    nothing: &'static str,
}

/// A run that is about to be made or continued.
struct Work<'a> {
    arguments: &'a args::Train,
    opened: Option<RunDirectory>,
    gpu: &'a Gpu,
    terminal: Terminal,
    stop: &'static AtomicBool,
}

impl Work<'_> {
    fn run<L: Learner>(
        self,
        mut state: State<L>,
        introduction: fn(&State<L>, &Gpu) -> String,
        what: &Learned,
    ) -> Result<()> {
        let Work {
            arguments,
            opened,
            gpu,
            terminal,
            stop,
        } = self;
        let mut run = match opened {
            Some(mut run) => {
                resume(&mut state, &mut run, &terminal)?;
                run
            }
            // Only now: what fails above leaves nothing behind.
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
        let go_on = go_on_with(&place);
        let ending = trainer::train(&mut state, &mut run, &mut sinks, &terminal, stop)
            .inspect_err(|_| terminal.line(&go_on))?;
        // The bars go before the table comes.
        drop(terminal);
        if ending == Ending::Stopped {
            write!(out::shown(), "{}", before_and_after(&run.records()?))?;
            return Err(Stopped::run(state.step, total, &go_on).into());
        }
        let [last, _] = state.learner.paths(&place);
        let learned_is = format!("The {} is in {}", what.name, last.display());
        conclude(run, what.is_in, what.nothing, &learned_is)
    }
}

/// Puts back what the latest checkpoint has, and cuts off what was recorded after it.
fn resume<L: Learner>(
    state: &mut State<L>,
    run: &mut RunDirectory,
    terminal: &Terminal,
) -> Result<(), Error> {
    let Some(saved) = latest(run, terminal)? else {
        return Ok(());
    };
    let (bytes, names) = (saved.header.bytes, state.learner.names());
    let of = (&*state.model_name, &*state.fingerprint);
    let snapshot = saved.snapshot(&state.config, of, names.iter().map(String::as_str))?;
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

/// The same of a network.
fn network_introduction(state: &State<NetworkLearner>, gpu: &Gpu) -> String {
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
        state.learner.size(),
        state.learner.fingerprint(),
        gpu.caps().name
    )
}
