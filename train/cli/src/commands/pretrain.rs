//! `lapwing pretrain`: a small base model from nothing.

use std::io::Write;

use anyhow::Result;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::base::pretrain::{self, Pretraining};
use lapwing_train::doctor::self_test;
use lapwing_train::{Config, Progress};

use crate::args;
use crate::out;
use crate::progress::Terminal;

/// Trains all weights of a new model and writes it down.
pub fn pretrain(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Pretrain,
) -> Result<()> {
    let usual = Pretraining::default();
    let how = Pretraining {
        games: match arguments.configs.is_empty() {
            true => usual.games.clone(),
            false => {
                let game = |config: &String| Ok(Config::load(config, &[])?.game);
                arguments.configs.iter().map(game).collect::<Result<_>>()?
            }
        },
        skill: arguments.skill.unwrap_or(usual.skill),
        steps: arguments.steps.map_or(usual.steps, |steps| steps as usize),
        seed: arguments.seed,
        ..usual
    };
    let gpu = open_gpu()?;
    self_test(&gpu)?;
    let terminal = Terminal::new();
    terminal.phase("pretraining", how.steps, "updates");
    pretrain::pretrain(&gpu, &how, &arguments.out, |so_far| {
        terminal.done(so_far.step);
        let text = format!("loss {:.4} (at least {:.4})", so_far.loss, so_far.floor);
        terminal.steps(so_far.step, how.steps, &text, &text);
    })?;
    drop(terminal);
    writeln!(out::shown(), "The model is in {}.", arguments.out.display())?;
    Ok(())
}
