//! `lapwing train`: a run from its config to its adapter, with a comparison at the end.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::{Context, Result};
use indicatif::HumanCount;
use lapwing_lab::doctor::self_test;
use lapwing_lab::report;
use lapwing_lab::tensorboard::EventFile;
use lapwing_learn::communicator::Communicator;
use lapwing_learn::config::Weights;
use lapwing_learn::metrics::StepMetrics;
use lapwing_learn::ranks::{self, RankState};
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::{AgentView, Progress};
use lapwing_tensor::Gpu;
use lapwing_train::health;
use lapwing_train::learner::Learner;
use lapwing_train::ranks::{RankIdentity, compare, dismiss};
use lapwing_train::record::directory::{self, RunDirectory, Session};
use lapwing_train::record::metrics::{TestResults, now};
use lapwing_train::record::{Record, Sink};
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::trainer::{self, TrainingEnd};
use lapwing_train::warmup;
use lapwing_train::{Config, Error};

use super::InputError;
use super::eval::note_scenes;
use crate::args::{DeviceArgs, TrainArgs};
use crate::comparison::comparison;
use crate::hub::hub;
use crate::interrupt::{self, Stopped};
use crate::progress::{Steps, Terminal};
use crate::screen::counted;
use crate::{describe, folders, launch, out, records};

/// Characters of an example reply.
const LONGEST_EXAMPLE: usize = 200;

pub fn train(
    device: DeviceArgs,
    arguments: &TrainArgs,
    ranks: Box<dyn Communicator>,
) -> Result<()> {
    match ranks.rank() {
        0 => lead(device, arguments, ranks),
        // Rank 0 alone prints.
        _ if arguments.dry_run => Ok(()),
        rank => {
            assist(device, arguments, ranks).with_context(|| format!("rank {rank} on {}", host()))
        }
    }
}

/// Trains on a rank other than 0: plays and computes what rank 0 requests.
fn assist(device: DeviceArgs, arguments: &TrainArgs, ranks: Box<dyn Communicator>) -> Result<()> {
    let (stop, device) = (interrupt::listen("")?, launch::device(device));
    interrupt::IS_LOADING.store(true, Relaxed);
    let mut config = Vec::new();
    ranks.broadcast(&mut config);
    let loaded = load(device, &config).and_then(|(state, gpu)| {
        let own = identity(&state, &gpu, device, arguments)?;
        Ok((state, own))
    });
    // Rank 0 prints the error, unless it has one itself.
    let told = |error: &anyhow::Error| format!("rank {} on {}: {error:#}", ranks.rank(), host());
    compare(
        &*ranks,
        loaded.as_ref().map(|(_, own)| own.clone()).map_err(told),
    )?;
    let (mut state, _) = loaded?;
    interrupt::IS_LOADING.store(false, Relaxed);
    state.learner.ranks = ranks;
    Ok(ranks::assist(
        &mut state.learner,
        &state.config.language(),
        stop,
    )?)
}

/// Loads everything for the config of rank 0.
fn load(device: DeviceArgs, config: &[u8]) -> Result<(State, Gpu)> {
    let gpu = device.open()?;
    self_test(&gpu, folders::cache().as_deref())?;
    let config = serde_json::from_slice(config)?;
    Ok((
        State::new(&gpu, hub(), config, RunPurpose::Train, &())?,
        gpu,
    ))
}

/// Trains in a single process, or on rank 0.
fn lead(device: DeviceArgs, arguments: &TrainArgs, ranks: Box<dyn Communicator>) -> Result<()> {
    let stop = interrupt::listen(interrupt::STEP_IS_SAVED)?;
    interrupt::IS_LOADING.store(true, Relaxed);
    let config = arguments.config()?;
    // Checked before anything is loaded.
    let resumed = arguments.resume.as_deref().map(RunDirectory::open);
    let resumed = resumed.transpose()?;
    if let Some(out) = &arguments.out {
        directory::check_free(out)?;
    }
    let is_divided = ranks.size() > 1 && !arguments.dry_run;
    if is_divided {
        if !config.learner.has_language() {
            let learner = config.learner.name();
            let problem = "this learner trains in one process; start it without mpirun";
            return Err(InputError::new(format!("learner = \"{learner}\""), problem).into());
        }
        ranks.broadcast(&mut serde_json::to_vec(&config)?);
    }
    let device = launch::device(device);
    let gpu = device.open()?;
    self_test(&gpu, folders::cache().as_deref())?;
    let terminal = Terminal::new();
    if !config.learner.has_language() {
        let state = State::network(&gpu, config)?;
        let learner = format!(
            "{} episodes, by {}: a network of {} weights with {} as input",
            state.config.value.episodes,
            state.config.learner.name(),
            state.learner.parameters.count(),
            state.learner.fingerprint()
        );
        if arguments.dry_run {
            return print_plan(&state, &learner, &gpu, arguments);
        }
        return run(state, &learner, arguments, resumed, &gpu, terminal, stop);
    }
    let mut state = State::new(&gpu, hub(), config, RunPurpose::Train, &terminal)?;
    let train = &state.config.train;
    let whole = match state.trains_model() {
        true => ", with all weights of the model",
        false => "",
    };
    let (groups, size, sampling) = (train.groups, train.group_size, describe::sampling(train));
    let mixed = describe::mixed(&state.config);
    let learner = format!("{groups} x {size} episodes, {sampling}{whole}{mixed}");
    if arguments.dry_run {
        state.config.warmup.check(&*state.world().scenario)?;
        print_example(&mut state, terminal)?;
        return print_plan(&state, &learner, &gpu, arguments);
    }
    if resumed.is_none() {
        state.config.warmup.check(&*state.world().scenario)?;
    }
    if is_divided {
        let all = compare(&*ranks, Ok(identity(&state, &gpu, device, arguments)?))?;
        for (rank, other) in all.iter().enumerate() {
            let number = other.number.map(|number| format!("device {number}, "));
            let (host, number) = (&other.host, number.unwrap_or_default());
            terminal.line(&format!("rank {rank} on {host}: {number}{}", other.device));
        }
        if all.iter().any(|other| other.device != all[0].device) {
            terminal.note(
                "the devices of the ranks differ, so another number of ranks gives slightly other results",
            );
        }
        state.learner.ranks = ranks;
    }
    run(state, &learner, arguments, resumed, &gpu, terminal, stop)
}

/// Returns the name of this machine.
fn host() -> String {
    #[cfg(unix)]
    if let Ok(name) = nix::unistd::gethostname() {
        return name.to_string_lossy().into_owned();
    }
    "this machine".to_owned()
}

/// What must be equal on all ranks.
fn identity(
    state: &State,
    gpu: &Gpu,
    device: DeviceArgs,
    arguments: &TrainArgs,
) -> Result<RankIdentity> {
    Ok(RankIdentity {
        host: host(),
        number: device.index,
        device: gpu.caps().name.clone(),
        program: checksum_of_program()?,
        arguments: format!("{arguments:?}"),
        model: state.fingerprint.clone(),
    })
}

/// Prints a prompt, the number of parameters, and how many replies can be read, with examples.
fn print_example(state: &mut State, terminal: Terminal) -> Result<()> {
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
    let turns = warmup::sample_turns(&mut state.learner, &state.config, &terminal)?;
    drop(terminal);
    writeln!(out, "{}, such as:", health::readable(&turns))?;
    let [read, unread] = [true, false].map(|is| turns.iter().find(|it| it.action.is_some() == is));
    for turn in [read, unread].into_iter().flatten() {
        let said: String = turn.text.chars().take(LONGEST_EXAMPLE).collect();
        let why = turn
            .unread
            .map(|why| format!(" (invalid: {})", why.in_words()));
        writeln!(out, "  {said:?}{}", why.unwrap_or_default())?;
    }
    match state.config.warmup.updates {
        0 if health::is_unreadable(&turns) => {
            let cures = health::cures(&state.config);
            writeln!(out, "From such replies little can be learned: {cures}")?;
        }
        0 => (),
        updates => {
            let updates = counted(updates, "update");
            let warmup = &state.config.warmup;
            let player = &warmup.player;
            let episodes = match warmup.has_file() {
                true => format!("the episodes in {player}"),
                false => format!(
                    "{} of the {player} player",
                    counted(warmup.episodes, "episode")
                ),
            };
            writeln!(out, "would warm up first: {updates} on {episodes}")?;
        }
    }
    writeln!(out, "would train {parameters} parameters, {of}")?;
    Ok(())
}

fn print_plan<L>(state: &State<L>, learner: &str, gpu: &Gpu, arguments: &TrainArgs) -> Result<()> {
    let next = || directory::next_free(&Path::new("runs").join(&state.config.name));
    let place = arguments.out.clone().unwrap_or_else(next);
    let (introduction, place) = (introduction(state, learner, gpu), place.display());
    writeln!(out::shown(), "would train {introduction}, kept in {place}")?;
    Ok(())
}

fn introduction<L>(state: &State<L>, learner: &str, gpu: &Gpu) -> String {
    let (game, steps) = (&state.config.game.name, state.config.train.steps);
    let steps = counted(steps, "step");
    let from = match state.step {
        0 => String::new(),
        step => format!(", from step {step} on"),
    };
    let (device, backend) = (&gpu.caps().name, &gpu.caps().backend);
    let software = match (gpu.is_software(), backend == "gl") {
        (true, true) => {
            " (a software device through OpenGL: no GPU is used; with a Vulkan driver, such as the package \
             mesa-vulkan-drivers, it is several times faster)"
        }
        (true, false) => " (a software device: no GPU is used)",
        (false, _) => "",
    };
    format!("{game}: {steps} of {learner}{from}; on {device}{software}")
}

/// Starts or resumes a run. `learner` describes a step and what is trained.
fn run<L: Learner>(
    mut state: State<L>,
    learner: &str,
    arguments: &TrainArgs,
    resumed: Option<RunDirectory>,
    gpu: &Gpu,
    terminal: Terminal,
    stop: &AtomicBool,
) -> Result<()> {
    interrupt::IS_LOADING.store(false, Relaxed);
    let mut run = match resumed {
        Some(mut run) => {
            trainer::resume(&mut state, &mut run, &terminal)?;
            run
        }
        // Created last: an error above, or a signal, leaves nothing behind.
        None if stop.load(Relaxed) => return Err(Stopped(" before the first step".into()).into()),
        None => match &arguments.out {
            Some(out) => RunDirectory::create(out, &state.config)?,
            None => RunDirectory::create_in("runs".as_ref(), &state.config)?,
        },
    };
    let place = run.path().to_owned();
    let caps = gpu.caps().clone();
    run.begin(&Session {
        time: now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        program: format!("{:08x}", checksum_of_program()?),
        step: state.step,
        device: caps.name,
        driver: caps.driver,
        backend: caps.backend,
        software: gpu.is_software(),
        config: match &arguments.resume {
            Some(run) => run.display().to_string(),
            None => arguments.config.config.clone(),
        },
        model: state.model_name.clone(),
        fingerprint: state.fingerprint.clone(),
    })?;
    let total = state.config.train.steps;
    // A new run has not been evaluated.
    match state.evaluated {
        Some(step) if step >= total => terminal.note(&format!(
            "there is nothing to do: {} has its {total} steps; --steps N trains on",
            place.display()
        )),
        _ => {
            let introduction = introduction(&state, learner, gpu);
            terminal.line(&format!("{introduction}, kept in {}", place.display()));
        }
    }
    let divided = state.learner.game().1.divided;
    note_scenes(state.learner.game().1, &terminal);
    let mut steps = Steps {
        terminal: &terminal,
        total,
    };
    let mut events = EventFile::of_run(&place, &state.config)?;
    let mut sinks: Vec<&mut dyn Sink> = vec![&mut steps];
    sinks.extend(events.as_mut().map(|events| events as &mut dyn Sink));
    let shown_place = out::quoted(&place.to_string_lossy());
    let hint = format!("resume with: {} train --resume {shown_place}", program());
    let ending =
        trainer::train(&mut state, &mut run, &mut sinks, &terminal, stop).inspect_err(|error| {
            // A resumed run would diverge again.
            if !error.is_divergence() && !matches!(error, Error::Diverged(_)) {
                terminal.line(&hint);
            }
        })?;
    let ranks = dismiss(&mut state)?;
    let all: u64 = ranks.iter().map(|rank| rank.tokens_computed).sum();
    if all > 0 {
        let share =
            |rank: &RankState| format!("{:.1} %", 100.0 * rank.tokens_computed as f64 / all as f64);
        let shares: Vec<String> = ranks.iter().map(share).collect();
        terminal.line(&format!(
            "tokens computed by each rank: {}",
            shares.join(", ")
        ));
    }
    // Removes the progress bars.
    drop(terminal);
    let records = run.records()?;
    let stopped = match ending {
        TrainingEnd::Finished => None,
        TrainingEnd::Stopped => Some(format!(" at step {} of {total}, and saved", state.step)),
        TrainingEnd::StoppedInWarmup => Some(" in the warm-up, which starts again".to_owned()),
    };
    if let Some(place) = stopped {
        return Err(Stopped(format!("{place}; {hint}")).into());
    }
    write!(
        out::shown(),
        "{}",
        before_and_after(&place, &state.config, divided)
    )?;
    // Unlocks the run, so that the report shows it as finished.
    drop(run);
    conclude(&state, &records, &place)
}

fn conclude<L: Learner>(state: &State<L>, records: &[Record], run: &Path) -> Result<()> {
    let mut out = out::shown();
    let has_language = state.config.learner.has_language();
    let has_learned = |step: &StepMetrics| step.learned.is_some() || step.value.is_some();
    if !records::steps(records).any(has_learned) {
        let why = match has_language {
            _ if records::steps(records).next().is_none() => "train.steps is 0",
            _ if records::steps(records).all(StepMetrics::is_warmup) => {
                "critic.warmup is not below train.steps, so only the critic was trained"
            }
            true if records::steps(records).all(|step| step.play.valid_action_rate < 0.5) => {
                "most replies could not be read (unreadable in `lapwing help health-checks`)"
            }
            true => {
                "in no step did the returns of a group differ (no-variance in `lapwing help health-checks`)"
            }
            false => "there were never as many turns as dqn.start requires",
        };
        writeln!(out, "\nNothing was learned: {why}.")?;
    }
    let noun = match state.config.train.weights {
        _ if !has_language => "network",
        Weights::Lora => "adapter",
        Weights::All => "model",
    };
    let [last, best] = state
        .learner
        .paths(run)
        .map(|path| path.display().to_string());
    writeln!(out, "\nThe {noun} is in {last}.")?;
    // `play` takes the best one.
    if let Some(at) = state.best.filter(|_| state.step > 0) {
        let shown = out::quoted(&run.to_string_lossy());
        let when = (at.step == 0).then_some(", before training");
        let when = when.unwrap_or_default();
        writeln!(
            out,
            "The best {noun} (step {}{when}, return {:.3}) is in {best}. Watch it play:\n  {} play {shown}",
            at.step,
            at.score,
            program()
        )?;
    }
    let runs = [run.to_owned()];
    let page = report::default_path(&runs);
    match report::write(&runs, &page) {
        Ok(_) => writeln!(out, "Its report is in {}", page.display())?,
        // The training has succeeded, and all is saved.
        Err(error) => out::warning(&format!("no report: {error}")),
    }
    Ok(())
}

/// Returns a table of the tests before and after training, with the baselines.
fn before_and_after(run: &Path, config: &Config, divided: bool) -> String {
    let results = TestResults::read(run);
    let mut rows: Vec<(String, &PlayMetrics)> = Vec::new();
    for (at, tested) in results.sampled.iter().enumerate() {
        let name = match tested.step {
            0 if config.warmup.updates > 0 => "after the warm-up",
            0 => "before training",
            _ => "after training",
        };
        rows.push((name.to_owned(), &tested.play));
        let greedy = results.greedy.get(at);
        rows.extend(greedy.map(|greedy| (format!("{name}, greedy"), &greedy.play)));
    }
    let table = comparison(&results.baselines, &rows, config.eval.episodes);
    let scenes = match divided {
        true => "held-out scenes, drawn apart from the evaluations",
        false => "training scenes, drawn apart from the evaluations",
    };
    format!("test on {scenes}:\n{table}")
}

fn checksum_of_program() -> io::Result<u32> {
    Ok(crc32c::crc32c(&std::fs::read(std::env::current_exe()?)?))
}

/// Returns the name by which this program was called, which may not be on the PATH.
fn program() -> String {
    let name = std::env::args_os().next();
    name.map_or("lapwing".to_owned(), |name| {
        out::quoted(&name.to_string_lossy())
    })
}
