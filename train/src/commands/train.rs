//! `lapwing train`: a run from its config to its adapter, and what it was good for.

use std::io::{self, Write};

use anyhow::Result;
use lapwing::evaluate::{Player, baseline, seats};
use lapwing::ms_grpo;
use lapwing::progress::Progress;
use lapwing::report::{Report, comparison};
use lapwing::run::{Purpose, Run};
use lapwing::run_dir::RunDir;
use lapwing_tensor::{Gpu, GpuError};

use crate::cli;

/// Trains, and compares the model before and after with players that need none.
pub fn train(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &cli::Train,
) -> Result<()> {
    let config = arguments.config()?;
    let place = RunDir::place(arguments.out.as_deref(), &config)?;
    let gpu = open_gpu()?;
    let progress = Progress::new();
    let mut run = Run::new(&gpu, config.clone(), Purpose::Train, &progress)?;
    // Only now: what fails above leaves nothing behind.
    let directory = RunDir::create(&place, &config)?;

    progress.line(&introduction(&config, &gpu, &directory));
    let mut report = Report::new(directory, progress, config.train.steps);
    ms_grpo::train(&mut run, &mut report)?;

    let game = &config.game.name;
    let held_out = seats(config.eval.seed, config.eval.episodes);
    let random = baseline(&*run.scenario, game, &held_out, Player::Random);
    let scripted = baseline(&*run.scenario, game, &held_out, Player::Scripted);
    let (evaluations, directory) = (
        report.evaluations().to_vec(),
        report.run().path().to_owned(),
    );
    // The bars go before the table comes.
    drop(report);

    let mut rows = vec![("random player", &random)];
    // A run of no steps is examined once.
    if let [before, rest @ ..] = &evaluations[..] {
        rows.push(("before training", &before.eval));
        rows.extend(rest.last().map(|after| ("after training", &after.eval)));
    }
    rows.push(("scripted player", &scripted));
    let mut out = io::stdout().lock();
    write!(out, "{}", comparison(&rows))?;
    let run = directory.display();
    writeln!(out, "\nThe adapter is in {run}/adapter. Watch it play:")?;
    writeln!(
        out,
        "  {} play {run}/config.toml --adapter {run}/adapter",
        program()
    )?;
    Ok(())
}

/// This program as it was called: from a build it is not on anybody's path.
fn program() -> String {
    std::env::args_os()
        .next()
        .map_or("lapwing".to_owned(), |name| {
            name.to_string_lossy().into_owned()
        })
}

/// What is about to happen, and where.
fn introduction(config: &lapwing::Config, gpu: &Gpu, directory: &RunDir) -> String {
    let train = &config.train;
    let software = if gpu.is_software() {
        " (a software adapter: no GPU is used)"
    } else {
        ""
    };
    format!(
        "{}: {} steps of {} x {} episodes on {}{software}, kept in {}",
        config.game.name,
        train.steps,
        train.groups,
        train.group_size,
        gpu.caps().name,
        directory.path().display()
    )
}
