//! `lapwing probe`: does an agent read what it is told, or play as it has learned to?

use std::io::Write;

use anyhow::Result;
use lapwing_env::{Scenario, SemanticProbe};
use lapwing_lab::scores::Scores;
use lapwing_play::Progress;
use lapwing_play::config::Game;
use lapwing_play::evaluate::{baseline_episodes, play_evaluation};
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::probe::{Followed, Verdict, Watched};
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::state::{Purpose, State};
use serde::Serialize;

use super::agents::{Agent, after_and_before};
use super::eval::between;
use crate::args;
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;
use crate::table::Table;

/// What `--json` prints.
#[derive(Serialize)]
struct Probed<'a> {
    version: &'a str,
    game: &'a str,
    model: &'a str,
    adapter: &'a str,
    seed: u64,
    temperature: f64,
    /// the game as it usually is first, then its probes
    probes: &'a [Row],
}

/// What came of one probe.
#[derive(Serialize)]
struct Row {
    probe: String,
    summary: String,
    subtlety: String,
    random: Option<f64>,
    scripted: Option<f64>,
    players: Vec<OfPlayer>,
}

/// What one player made of it.
#[derive(Serialize)]
struct OfPlayer {
    #[serde(flatten)]
    scores: Scores,
    parted: usize,
    told: usize,
    habit: usize,
    verdict: Verdict,
}

/// Plays the game with usual and with changed instructions, and tells who reads them.
pub fn probe(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Probe,
) -> Result<()> {
    let config = arguments.config()?;
    let probes = arguments.probes(&config.game)?;
    let mut scenarios: Vec<Box<dyn Scenario>> = vec![config.game.scenario()?];
    for probe in &probes {
        let game = Game {
            probe: Some(probe.name.to_owned()),
            ..config.game.clone()
        };
        scenarios.push(game.scenario()?);
    }
    let terminal = Terminal::new();
    let mut state = State::with_games(
        &open_gpu()?,
        hub(),
        scenarios,
        config.clone(),
        Purpose::Play,
        &terminal,
    )?;
    let (after, before) = after_and_before(&state, &terminal)?;
    if before.is_none() {
        terminal.note(
            "only the model is probed: --adapter, or the directory of a run, sets a trained agent beside it",
        );
    }
    let agents: Vec<Agent> = before.into_iter().chain([after]).collect();
    let mut rows = Vec::new();
    for world in 0..state.learner.worlds.len() {
        let probe = world.checked_sub(1).map(|number| probes[number]);
        rows.push(row(&mut state, world, probe, &agents, &terminal)?);
    }
    drop(terminal);
    if arguments.json {
        let probed = Probed {
            version: env!("CARGO_PKG_VERSION"),
            game: &config.game.name.to_string(),
            model: &state.model_name,
            adapter: &(config.model.adapter.as_deref().unwrap_or("".as_ref())).to_string_lossy(),
            seed: config.eval.seed,
            temperature: config.eval.temperature,
            probes: &rows,
        };
        writeln!(out::raw(), "{}", serde_json::to_string(&probed)?)?;
        return Ok(());
    }
    let table = table(&rows);
    let drawn = match arguments.markdown {
        true => table.markdown(),
        false => table.text(),
    };
    let mut shown = out::shown();
    write!(shown, "{drawn}\n{EXPLANATION}")?;
    for row in &rows[1..] {
        writeln!(shown, "  {} ({}): {}", row.probe, row.subtlety, row.summary)?;
    }
    Ok(())
}

const EXPLANATION: &str = "\
told, habit: of the turns in which the changed instructions and the usual ones ask for different actions, the share that
went by either. overridden: by habit more often than by what was told, beyond two standard errors.
";

fn row(
    state: &mut State,
    world: usize,
    probe: Option<&SemanticProbe>,
    agents: &[Agent],
    progress: &Terminal,
) -> Result<Row> {
    let seats = state.seats(world)?;
    let temperature = state.config.eval.temperature;
    let name = probe.map_or("usual", |probe| probe.name);
    let mut players = Vec::new();
    for agent in agents {
        agent.takes_over(state);
        let (scenario, referee, mut player) = state.seated(world, temperature);
        let mut watched = Watched::new(&mut player);
        let episodes = play_evaluation(scenario, &referee, &seats, &mut watched, progress)?;
        let Followed {
            parted,
            told,
            habit,
        } = watched.followed;
        players.push(OfPlayer {
            verdict: Verdict::of(&watched.followed),
            scores: Scores::of(name, &agent.name, scenario.actions(), &seats, &episodes),
            parted,
            told,
            habit,
        });
    }
    let world = &state.learner.worlds[world];
    let referee = world.referee(&state.config.policy);
    let baseline_episodes = baseline_episodes(&*world.scenario, &referee, &seats, &mut [])?;
    let mean = |episodes: Option<Vec<_>>| {
        let actions = world.scenario.actions();
        episodes.map(|episodes| PlayMetrics::of(actions, &episodes).return_mean)
    };
    Ok(Row {
        probe: name.to_owned(),
        summary: probe.map_or(String::new(), |probe| probe.summary.to_owned()),
        subtlety: probe.map_or(String::new(), |probe| {
            format!("{:?}", probe.subtlety).to_lowercase()
        }),
        random: mean(baseline_episodes.random),
        scripted: mean(baseline_episodes.scripted),
        players,
    })
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "probe", "player", "return", "95 %", "random", "scripted", "valid", "told", "habit",
        "verdict",
    ]);
    let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
    for (place, row) in rows.iter().enumerate() {
        for player in &row.players {
            let (scores, play) = (&player.scores, &player.scores.play);
            let share = |count: usize| match player.parted {
                0 => String::new(),
                parted => format!("{:.2}", count as f64 / parted as f64),
            };
            let verdict = match place {
                0 => "",
                _ => player.verdict.in_words(),
            };
            table.row([
                row.probe.clone(),
                scores.player.clone(),
                format!("{:.3}", play.return_mean),
                between(scores.return_interval),
                number(row.random),
                number(row.scripted),
                format!("{:.2}", play.valid_action_rate),
                share(player.told),
                share(player.habit),
                verdict.to_owned(),
            ]);
        }
    }
    table
}
