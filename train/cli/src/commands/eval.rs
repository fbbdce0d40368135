//! `lapwing eval`: how good a model is, beside players that need none.

use std::io::{self, Write};

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::Progress;
use lapwing_train::play::evaluate::{evaluate, optimum};
use lapwing_train::play::players::scripted::{Random, Scripted};
use lapwing_train::play::{Referee, Seat};
use lapwing_train::record::metrics::EvalMetrics;
use lapwing_train::run::state::{Purpose, State};

use crate::args;
use crate::progress::Terminal;
use crate::table::comparison;

/// Said of a game with a single scene.
pub const NOT_DIVIDED: &str =
    "this game has too few scenes to hold some out: the evaluation plays what is trained on";

/// Plays the held-out episodes and prints the result.
pub fn eval(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Eval,
) -> Result<()> {
    let config = arguments.config()?;
    let terminal = Terminal::new();
    let mut state = State::new(&open_gpu()?, config.clone(), Purpose::Play, &terminal)?;
    let seats = state.evaluation_seats()?;
    if !state.scenes.divided() {
        terminal.note(NOT_DIVIDED);
    }
    let (scenario, referee, mut player) = state.seated(config.eval.temperature);
    let metrics = evaluate(scenario, &referee, &seats, &mut player, &terminal)?;
    drop(terminal);

    if arguments.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&metrics)?)?;
        return Ok(());
    }
    let name = match config.model.adapter_directory() {
        Some(_) => "model and adapter",
        None => "model",
    };
    let table = beside_yardsticks(scenario, &referee, &seats, &[(name, &metrics)])?;
    write!(io::stdout(), "{table}")?;
    Ok(())
}

/// These players between the random one and the scripted one, with the best possible below.
pub fn beside_yardsticks(
    scenario: &dyn Scenario,
    referee: &Referee,
    seats: &[Seat],
    players: &[(&str, &EvalMetrics)],
) -> Result<String> {
    let random = evaluate(scenario, referee, seats, &mut Random::default(), &())?;
    let game = scenario.start(seats[0].scene, seats[0].luck)?;
    let scripted = match game.best_actions(0) {
        Some(_) => Some(evaluate(
            scenario,
            referee,
            seats,
            &mut Scripted::default(),
            &(),
        )?),
        None => None,
    };
    let mut rows = vec![("random player", &random)];
    rows.extend(players);
    rows.extend(scripted.iter().map(|metrics| ("scripted player", metrics)));
    Ok(comparison(&rows, optimum(scenario, seats)?))
}
