//! `lapwing eval`: how good a model is, beside players that need none.

use std::io::{self, Write};

use anyhow::Result;
use lapwing::evaluate::{Player, baseline, evaluate, seats};
use lapwing::progress::Progress;
use lapwing::report::comparison;
use lapwing::run::{Purpose, Run};
use lapwing_tensor::{Gpu, GpuError};

use crate::cli;

/// Plays the held-out episodes and prints the result.
pub fn eval(open_gpu: impl FnOnce() -> Result<Gpu, GpuError>, arguments: &cli::Eval) -> Result<()> {
    let config = arguments.config()?;
    let progress = Progress::new();
    let mut run = Run::new(&open_gpu()?, config.clone(), Purpose::Play, &progress)?;
    let metrics = evaluate(&mut run, &progress)?;
    drop(progress);

    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&metrics)?)?;
        return Ok(());
    }
    let held_out = seats(config.eval.seed, config.eval.episodes);
    let player = |player| baseline(&*run.scenario, &config.game.name, &held_out, player);
    let name = if config.model.adapter_directory().is_some() {
        "model and adapter"
    } else {
        "model"
    };
    let (random, scripted) = (player(Player::Random), player(Player::Scripted));
    write!(
        out,
        "{}",
        comparison(&[
            ("random player", &random),
            (name, &metrics),
            ("scripted player", &scripted)
        ])
    )?;
    Ok(())
}
