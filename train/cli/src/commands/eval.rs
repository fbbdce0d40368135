//! `lapwing eval`: how good a model is, beside players that need none.

use std::io::Write;

use anyhow::Result;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::Progress;
use lapwing_train::play::Episode;
use lapwing_train::play::evaluate::{examine, yardsticks};
use lapwing_train::record::metrics::{PlayMetrics, Yardsticks};
use lapwing_train::record::stats::interval;
use lapwing_train::run::state::{Purpose, State};
use serde::Serialize;

use crate::args;
use crate::interrupt;
use crate::out;
use crate::progress::Terminal;
use crate::table::comparison;

/// Said of a game with a single scene.
pub const NOT_DIVIDED: &str =
    "this game has too few scenes to hold some out: the evaluation plays what is trained on";

/// What `--json` prints.
#[derive(Serialize)]
struct Examined<'a> {
    version: &'a str,
    game: &'a str,
    model: &'a str,
    adapter: &'a str,
    seed: u64,
    temperature: f64,
    #[serde(flatten)]
    play: &'a PlayMetrics,
    /// 95 % bootstrap intervals over the episodes
    return_interval: [f64; 2],
    success_interval: [f64; 2],
    yardsticks: &'a Yardsticks,
}

/// Plays the held-out episodes and prints the result.
pub fn eval(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Eval,
) -> Result<()> {
    let config = arguments.config()?;
    interrupt::end_with_children(&config.game.name)?;
    let terminal = Terminal::new();
    let mut state = State::new(&open_gpu()?, config.clone(), Purpose::Play, &terminal)?;
    let seats = state.evaluation_seats()?;
    if !state.scenes.divided() {
        terminal.note(NOT_DIVIDED);
    }
    let model = state.model_name.clone();
    let (seed, temperature) = (config.eval.seed, config.eval.temperature);
    let (scenario, referee, mut player) = state.seated(temperature);
    let episodes = examine(scenario, &referee, &seats, &mut player, &terminal)?;
    let play = PlayMetrics::of(scenario.actions(), &episodes);
    let yardsticks = yardsticks(scenario, &referee, &seats, seed)?;
    drop(terminal);

    if arguments.json {
        let over =
            |of: fn(&Episode) -> f64| interval(&episodes.iter().map(of).collect::<Vec<f64>>());
        let examined = Examined {
            version: env!("CARGO_PKG_VERSION"),
            game: &config.game.name,
            model: &model,
            adapter: &config.model.adapter,
            seed,
            temperature,
            play: &play,
            return_interval: over(Episode::game_return),
            success_interval: over(|episode| f64::from(u8::from(episode.success))),
            yardsticks: &yardsticks,
        };
        writeln!(out::raw(), "{}", serde_json::to_string(&examined)?)?;
        return Ok(());
    }
    let name = match config.model.adapter_directory() {
        Some(_) => "model and adapter",
        None => "model",
    };
    let rows = [(name.to_owned(), &play)];
    write!(out::shown(), "{}", comparison(&yardsticks, &rows))?;
    Ok(())
}
