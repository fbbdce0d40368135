//! `lapwing train`: a run from its config to its adapter, and what it was good for.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::Config;
use lapwing_train::record::directory;
use lapwing_train::run::state::{Purpose, State};
use lapwing_train::run::trainer;

use super::eval::{NOT_DIVIDED, beside_yardsticks};
use crate::args;
use crate::describe;
use crate::progress::{Steps, Terminal};

/// Trains, and compares the model before and after with players that need none.
pub fn train(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Train,
) -> Result<()> {
    let config = arguments.config()?;
    let place = directory::place(arguments.out.as_deref(), &config)?;
    let gpu = open_gpu()?;
    let terminal = Terminal::new();
    let mut state = State::new(&gpu, config.clone(), Purpose::Train, &terminal)?;
    // Only now: what fails above leaves nothing behind.
    let mut jsonl = directory::create(&place, &state.config)?;

    terminal.line(&introduction(&config, &gpu, &place));
    if !state.scenes.divided() {
        terminal.line(NOT_DIVIDED);
    }
    let mut steps = Steps {
        terminal: &terminal,
        total: config.train.steps,
    };
    let adapter = directory::adapter(&place);
    let evaluations = trainer::train(
        &mut state,
        &adapter,
        &mut [&mut jsonl, &mut steps],
        &terminal,
    )?;

    let mut rows = Vec::new();
    // A run of no steps is examined once.
    if let [before, rest @ ..] = &evaluations[..] {
        rows.push(("before training", &before.eval));
        rows.extend(rest.last().map(|after| ("after training", &after.eval)));
    }
    let seats = state.evaluation_seats()?;
    let (scenario, referee, _) = state.seated(config.eval.temperature);
    let table = beside_yardsticks(scenario, &referee, &seats, &rows)?;
    // The bars go before the table comes.
    drop(terminal);
    let mut out = io::stdout().lock();
    write!(out, "{table}")?;
    let run = place.display();
    writeln!(
        out,
        "\nThe adapter is in {}. Watch it play:",
        adapter.display()
    )?;
    writeln!(
        out,
        "  {} play {run}/config.toml --adapter {run}/adapter",
        program()
    )?;
    Ok(())
}

/// This program as it was called: from a build it is not on anybody's path.
fn program() -> String {
    let name = std::env::args_os().next();
    name.map_or("lapwing".to_owned(), |name| {
        name.to_string_lossy().into_owned()
    })
}

/// What is about to happen, and where.
fn introduction(config: &Config, gpu: &Gpu, place: &Path) -> String {
    let train = &config.train;
    let software = match gpu.is_software() {
        true => " (a software adapter: no GPU is used)",
        false => "",
    };
    format!(
        "{}: {} steps of {} x {} episodes, {}; on {}{software}, kept in {}",
        config.game.name,
        train.steps,
        train.groups,
        train.group_size,
        describe::sampling(train),
        gpu.caps().name,
        place.display()
    )
}
