//! `lapwing probe`: whether an agent follows changed instructions.

use std::io::Write;

use anyhow::Result;
use lapwing_env::{Scenario, SemanticProbe};
use lapwing_lab::scores::PlayerScores;
use lapwing_lab::text_table::TextTable;
use lapwing_play::config::GameConfig;
use lapwing_play::evaluate::{baseline_episodes, play_against};
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::probe::{ProbeCounts, ProbedPlayer, Verdict};
use lapwing_play::{Progress, Referee, Seat};
use lapwing_train::state::{RunPurpose, State};
use serde::Serialize;
use serde_json::json;

use super::agents::{ModelAgent, initial_model, trained_and_initial};
use super::eval::report_head;
use crate::args::{DeviceArgs, ProbeArgs};
use crate::comparison::interval;
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;

#[derive(Serialize)]
struct ProbeRow {
    probe: &'static str,
    summary: &'static str,
    subtlety: String,
    random: Option<f64>,
    scripted: Option<f64>,
    players: Vec<ProbedAgent>,
}

/// The results of one player in one probe.
#[derive(Serialize)]
struct ProbedAgent {
    #[serde(flatten)]
    scores: PlayerScores,
    #[serde(flatten)]
    followed: ProbeCounts,
    verdict: Verdict,
}

pub fn probe(device: DeviceArgs, arguments: &ProbeArgs) -> Result<()> {
    let config = arguments.config()?;
    let probes = arguments.probes(&config.game)?;
    let mut scenarios: Vec<Box<dyn Scenario>> = vec![config.game.scenario()?];
    for probe in &probes {
        let game = GameConfig {
            probe: Some(probe.name.to_owned()),
            ..config.game.clone()
        };
        scenarios.push(game.scenario()?);
    }
    let terminal = Terminal::new();
    if initial_model(&config.model)? == config.model {
        terminal.note(
            "only the initial model is probed; to probe a trained one, give --adapter or a run",
        );
    }
    let (gpu, own, purpose) = (device.open()?, config.clone(), RunPurpose::Play);
    let mut state = State::with_games(&gpu, hub(), scenarios, own, purpose, &terminal)?;
    let (after, before) = trained_and_initial(&state, &terminal)?;
    let agents: Vec<ModelAgent> = before.into_iter().chain([after]).collect();
    let mut rows = Vec::new();
    for world in 0..state.learner.worlds.len() {
        let probe = world.checked_sub(1).map(|number| probes[number]);
        let (eval, own) = (&config.eval, &state.learner.worlds[world]);
        let seats = own.scenes.test(&*own.scenario, eval.seed, eval.episodes)?;
        rows.push(row(&mut state, world, probe, &agents, &seats, &terminal)?);
    }
    drop(terminal);
    if arguments.json {
        let game = config.game.name.to_string();
        let mut report = report_head(&game, &state.model_name, &config);
        // The unchanged game, then its probes.
        report["probes"] = json!(rows);
        writeln!(out::raw(), "{report}")?;
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
changed rules, usual rules: of the turns in which the two ask for different actions, the share that follows either; in
parentheses the same of random actions. reads, overridden: the changed or the usual rules are followed more often than
by chance, by more than three standard errors over episodes (so in ten or more). unclear: neither. not met: no turn in
which the two ask for different actions; give more --episodes. same meaning: only words or signs are changed.
";

fn row(
    state: &mut State,
    world: usize,
    probe: Option<&SemanticProbe>,
    agents: &[ModelAgent],
    seats: &[Seat],
    progress: &Terminal,
) -> Result<ProbeRow> {
    let temperature = state.config.eval.temperature;
    let (name, summary) = probe.map_or(("usual", ""), |probe| (probe.name, probe.summary));
    let mut players = Vec::new();
    for agent in agents {
        agent.set_policy(state);
        let (scenario, referee, mut player) = state.seated(world, temperature);
        let mut watched = ProbedPlayer::new(&mut player);
        progress.phase("probe", seats.len() * scenario.agents(), "episodes");
        let episodes = play_against(scenario, &referee, seats, &mut watched, &mut [], progress)?;
        players.push(ProbedAgent {
            verdict: watched.verdict(),
            scores: PlayerScores::of(scenario, &agent.name, seats, &episodes),
            followed: watched.followed,
        });
    }
    let world = &state.learner.worlds[world];
    let referee = Referee::of(&*world.scenario, state.config.policy.format_penalty);
    let baselines = baseline_episodes(&*world.scenario, &referee, seats, &mut [])?;
    let mean = |episodes: Option<Vec<_>>| {
        let actions = world.scenario.actions();
        episodes.map(|episodes| PlayMetrics::of(actions, &episodes).return_mean)
    };
    Ok(ProbeRow {
        probe: name,
        summary,
        subtlety: probe.map_or(String::new(), |probe| {
            format!("{:?}", probe.subtlety).to_lowercase()
        }),
        random: mean(baselines.random),
        scripted: mean(baselines.scripted),
        players,
    })
}

fn table(rows: &[ProbeRow]) -> TextTable {
    let number = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.3}"));
    let cells = |(row, player): (&ProbeRow, &ProbedAgent)| {
        let (scores, play) = (&player.scores, &player.scores.play);
        let shares = player.followed.shares();
        let share = |of: usize| {
            let cell = |all: [f64; 4]| format!("{:.2} ({:.2})", all[of], all[of + 2]);
            shares.map_or(String::new(), cell)
        };
        let verdict = match row.subtlety.is_empty() {
            true => "",
            false => player.verdict.in_words(),
        };
        vec![
            ("probe", row.probe.to_owned()),
            ("player", scores.player.clone()),
            ("return", format!("{:.3}", play.return_mean)),
            ("95 %", interval(scores.return_interval)),
            ("random", number(row.random)),
            ("scripted", number(row.scripted)),
            ("valid", format!("{:.2}", play.valid_action_rate)),
            ("changed rules", share(0)),
            ("usual rules", share(1)),
            ("verdict", verdict.to_owned()),
        ]
    };
    let players = rows
        .iter()
        .flat_map(|row| row.players.iter().map(move |it| (row, it)));
    TextTable::of(players.map(cells))
}
