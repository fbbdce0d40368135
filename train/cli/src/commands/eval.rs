//! `lapwing eval`: the scores of models and other players on the same held-out scenes.

use std::io::Write;

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_lab::scores::{Difference, PlayerScores};
use lapwing_lab::text_table::TextTable;
use lapwing_play::config::GameConfig;
use lapwing_play::evaluate::{baseline_episodes, optimum, play_against};
use lapwing_play::metrics::Baselines;
use lapwing_play::players::search::SearchPlayer;
use lapwing_play::scenes::Scenes;
use lapwing_play::{Episode, Player, Progress, PromptWriter, Referee, Seat};
use lapwing_train::Config;
use lapwing_train::record::NewFile;
use lapwing_train::state::{RunPurpose, State};
use serde::Serialize;
use serde_json::{Value, json};

use super::agents::{other, trained_and_initial};
use super::human_scores::{self, HumanScores};
use super::loaded_model::InputError;
use super::opponent::OpponentPlayer;
use super::other_player;
use crate::args::{DeviceArgs, EvalArgs, OtherPlayer};
use crate::comparison::{best_possible, interval, row};
use crate::hub::hub;
use crate::progress::Terminal;
use crate::{interrupt, out};

const NOT_DIVIDED: &str = "of the scenes drawn, none or all are in the held-out fifth: evaluations and tests play training scenes";

const NOT_REPEATED: &str = "the game starts differently with the same seed: episodes of a group do not start alike, so comparing them means little";

#[derive(Serialize)]
struct GameScores {
    /// The name on the command line.
    name: String,
    game: String,
    options: Value,
    players: Vec<PlayerScores>,
    /// The first player against each of the others.
    differences: Vec<Difference>,
    random: Option<PlayerScores>,
    scripted: Option<PlayerScores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<PlayerScores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    human: Option<HumanScores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_possible: Option<f64>,
}

pub fn eval(device: DeviceArgs, arguments: &EvalArgs) -> Result<()> {
    let config = arguments.config()?;
    let games = arguments.games(&config)?;
    let names: Vec<_> = games.iter().map(|game| &game.name).collect();
    interrupt::end_with_children(&names)?;
    let scenarios = games.iter().map(GameConfig::scenario);
    let scenarios: Vec<Box<dyn Scenario>> = scenarios.collect::<Result<_, _>>()?;
    let file = arguments.out.as_deref();
    let file = file.map(|path| NewFile::at(path, "--out")).transpose()?;
    let played = match arguments.player.player.is_none() && config.learner.has_language() {
        true => by_models(device, scenarios, &config, arguments),
        false => by_other_player(device, &scenarios, &config, arguments),
    };
    let (model, mut all) = played?;
    if let Some(file) = file {
        let lines = all.iter().map(GameScores::scene_lines);
        file.write(&lines.collect::<Result<String, _>>()?)?;
    }
    // The name distinguishes two presets of one game.
    for (game, name) in all.iter_mut().zip(&arguments.games) {
        game.name.clone_from(name);
    }
    let first = &all[0];
    if arguments.json {
        let play = |scores: &Option<PlayerScores>| Some(scores.as_ref()?.play.clone());
        let baselines = Baselines {
            game: first.game.clone(),
            seed: config.eval.seed,
            random: play(&first.random),
            scripted: play(&first.scripted),
            best_possible: first.best_possible,
        };
        // The values of the first game and player are repeated at the top.
        let parts = [
            report_head(&first.game, &model, &config),
            json!(first.players[0]),
            json!({ "baselines": baselines, "games": all }),
        ];
        let fields = parts.iter().filter_map(Value::as_object).flatten();
        let report = fields.map(|(name, value)| (name.clone(), value.clone()));
        writeln!(out::raw(), "{}", Value::Object(report.collect()))?;
        return Ok(());
    }
    let is_api = matches!(arguments.player.player, Some(OtherPlayer::OpenAi(_)));
    let replies = is_api || arguments.player.player.is_none() && config.learner.has_language();
    let print = |table: TextTable| match arguments.markdown {
        true => table.markdown(),
        false => table.text(),
    };
    let mut out = out::shown();
    for game in &all {
        if all.len() > 1 {
            writeln!(out, "{}\n", game.title())?;
        }
        write!(out, "{}", print(game.table(replies)))?;
        if !game.differences.is_empty() {
            write!(out, "\n{}", print(game.difference_table()))?;
        }
        if all.len() > 1 {
            writeln!(out)?;
        }
    }
    if all.len() > 1 {
        write!(out, "mean return in each game\n\n{}", print(transfer(&all)))?;
    }
    Ok(())
}

/// Returns the first fields of the output of `--json`.
pub fn report_head(game: &str, model: &str, config: &Config) -> Value {
    let adapter = config.model.adapter.as_ref();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "game": game,
        "model": model,
        "adapter": adapter.map_or(String::new(), |dir| dir.display().to_string()),
        "seed": config.eval.seed,
        "temperature": config.eval.temperature,
    })
}

/// Evaluates the model and its adapters. Returns the model's name, too.
fn by_models(
    device: DeviceArgs,
    scenarios: Vec<Box<dyn Scenario>>,
    config: &Config,
    arguments: &EvalArgs,
) -> Result<(String, Vec<GameScores>)> {
    let terminal = Terminal::new();
    let gpu = device.open()?;
    let (own, purpose) = (config.clone(), RunPurpose::Play);
    let mut state = State::with_games(&gpu, hub(), scenarios, own, purpose, &terminal)?;
    let (first, initial) = trained_and_initial(&state, &terminal)?;
    let mut agents = vec![first];
    for dir in &arguments.against {
        agents.push(other(dir, &state, &terminal)?);
    }
    agents.extend(initial);
    let mut all = Vec::new();
    for world in 0..state.learner.worlds.len() {
        let scenes = &state.learner.worlds[world].scenes;
        let scenario = &*state.learner.worlds[world].scenario;
        let seats = &seats(scenario, scenes, config, &terminal)?;
        let load = |name: &String| OpponentPlayer::load(name, &gpu, scenario, config, &terminal);
        let mut opponent = arguments.opponent.as_ref().map(load).transpose()?;
        let mut opponent = opponent.as_mut().map(|o| o.player(config.eval.temperature));
        let others = opponent.iter_mut().map(|o| &mut **o as &mut dyn Player);
        let mut others: Vec<&mut dyn Player> = others.collect();
        let mut players = Vec::new();
        for agent in &agents {
            agent.set_policy(&mut state);
            for (temperature, suffix) in decodings(config, arguments) {
                let name = format!("{}{suffix}", agent.name);
                let (scenario, referee, mut player) = state.seated(world, temperature);
                let (player, others) = (&mut player, &mut others);
                terminal.phase("evaluation", seats.len() * scenario.agents(), "episodes");
                let episodes = play_against(scenario, &referee, seats, player, others, &terminal)?;
                players.push(PlayerScores::of(scenario, &name, seats, &episodes));
            }
        }
        let scenario = &*state.learner.worlds[world].scenario;
        let referee = Referee::of(scenario, config.policy.format_penalty);
        let tries = arguments.search;
        let game = compare(scenario, &referee, seats, &mut others, players, tries)?;
        all.push(game);
    }
    Ok((state.model_name, all))
}

/// Refuses an option that compares language models.
pub fn refuse_for_network(config: &Config, is_given: bool, option: &str) -> Result<(), InputError> {
    if !is_given {
        return Ok(());
    }
    let name = config.learner.name();
    let problem = format!("takes adapters of language models, and {name} has none: leave it out");
    Err(InputError::new(option, problem))
}

/// Evaluates the selected player, or else the config's value network.
fn by_other_player(
    device: DeviceArgs,
    scenarios: &[Box<dyn Scenario>],
    config: &Config,
    arguments: &EvalArgs,
) -> Result<(String, Vec<GameScores>)> {
    refuse_for_network(config, !arguments.against.is_empty(), "--against")?;
    refuse_for_network(config, arguments.opponent.is_some(), "--opponent")?;
    let terminal = Terminal::new();
    let mut decodings = decodings(config, arguments);
    let name = match arguments.player.player {
        Some(_) => arguments.player.name(),
        None => config.learner.name().to_owned(),
    };
    if arguments.player.player.is_none() && arguments.greedy {
        terminal.note("--greedy has no effect: a network always takes the best action");
        decodings.truncate(1);
    }
    let mut all = Vec::new();
    for scenario in scenarios {
        let scenario = &**scenario;
        let seats = &seats(scenario, &Scenes::of(scenario)?, config, &terminal)?;
        let referee = Referee::of(scenario, config.policy.format_penalty);
        let mut players = Vec::new();
        for (temperature, suffix) in &decodings {
            let mut config = config.clone();
            config.eval.temperature = *temperature;
            let framing = PromptWriter::new(scenario, &config.policy)?;
            let mut player =
                other_player::load(&arguments.player, device, scenario, &framing, &config)?;
            terminal.phase("evaluation", seats.len() * scenario.agents(), "episodes");
            let episodes = play_against(scenario, &referee, seats, &mut player, &mut [], &terminal);
            // The cost is printed even after an error.
            if let Some(account) = player.account() {
                terminal.line(&format!("API: {account}"));
            }
            let name = format!("{name}{suffix}");
            players.push(PlayerScores::of(scenario, &name, seats, &episodes?));
        }
        let tries = arguments.search;
        all.push(compare(scenario, &referee, seats, &mut [], players, tries)?);
    }
    Ok((name, all))
}

/// Returns the temperatures at which each player is evaluated, and a suffix of its name for each.
fn decodings(config: &Config, arguments: &EvalArgs) -> Vec<(f64, &'static str)> {
    let mut decodings = vec![(config.eval.temperature, "")];
    if arguments.greedy && config.eval.temperature > 0.0 {
        decodings.push((0.0, ", greedy"));
    }
    decodings
}

/// Prints what is wrong with the scenes of a game.
pub fn note_scenes(scenes: &Scenes, terminal: &Terminal) {
    if !scenes.divided {
        terminal.note(NOT_DIVIDED);
    }
    if !scenes.repeat {
        terminal.note(NOT_REPEATED);
    }
}

fn seats(
    scenario: &dyn Scenario,
    scenes: &Scenes,
    config: &Config,
    terminal: &Terminal,
) -> Result<Vec<Seat>> {
    note_scenes(scenes, terminal);
    Ok(scenes.test(scenario, config.eval.seed, config.eval.episodes)?)
}

/// Compares the players with each other and with players that need no model.
fn compare(
    scenario: &dyn Scenario,
    referee: &Referee,
    seats: &[Seat],
    others: &mut [&mut dyn Player],
    players: Vec<PlayerScores>,
    tries: Option<usize>,
) -> Result<GameScores> {
    let game = scenario.name();
    let scores = |name: &str, episodes: Option<Vec<Episode>>| {
        episodes.map(|episodes| PlayerScores::of(scenario, name, seats, &episodes))
    };
    let baselines = baseline_episodes(scenario, referee, seats, others)?;
    let random = scores("random player", baselines.random);
    let scripted = scores("scripted player", baselines.scripted);
    let mut search = None;
    if let Some(tries) = tries {
        match SearchPlayer::new(scenario, tries)? {
            Some(mut player) => {
                let player = &mut player;
                let episodes = play_against(scenario, referee, seats, player, others, &())?;
                search = scores(&format!("search, {tries} tries an action"), Some(episodes));
            }
            None => out::note(&format!(
                "--search has no effect on {game}: it cannot be copied, or has no scripted player"
            )),
        }
    }
    // Unknown against other players.
    let best_possible = match others {
        [] => optimum(scenario, seats)?,
        _ => None,
    };
    let differences = players[1..].iter();
    Ok(GameScores {
        name: game.to_owned(),
        game: game.to_owned(),
        options: scenario.options(),
        differences: differences
            .map(|other| Difference::between(&players[0], other))
            .collect(),
        players,
        random,
        scripted,
        search,
        human: human_scores::of(scenario),
        best_possible,
    })
}

impl GameScores {
    fn title(&self) -> String {
        let options = self.options.as_object().into_iter().flatten();
        let options = options.map(|(name, value)| format!("{name} {value}"));
        format!("{}: {}", self.name, options.collect::<Vec<_>>().join(", "))
    }

    /// Returns all players in the order of the table.
    fn all(&self) -> impl Iterator<Item = &PlayerScores> {
        let players = self.random.iter().chain(&self.players);
        players.chain(&self.scripted).chain(&self.search)
    }

    fn scene_lines(&self) -> serde_json::Result<String> {
        let scenes = self.all().flat_map(|scores| &scores.scenes);
        let lines = scenes.map(|scene| Ok(serde_json::to_string(scene)? + "\n"));
        lines.collect()
    }

    fn table(&self, replies: bool) -> TextTable {
        let row = |scores: &PlayerScores| {
            let (success, returns) = (scores.success_interval, Some(scores.return_interval));
            row(&scores.player, &scores.play, success, returns, replies)
        };
        let rows = self.all().map(row);
        let rows = rows.chain(self.human.as_ref().map(HumanScores::row));
        TextTable::of(rows.chain(self.best_possible.map(best_possible)))
    }

    /// Returns a table of the first player's lead over each of the others.
    fn difference_table(&self) -> TextTable {
        let head = format!("{} minus", self.players[0].player);
        TextTable::of(self.differences.iter().map(|difference| {
            vec![
                (&*head, difference.against.clone()),
                ("return", format!("{:+.3}", difference.return_mean)),
                ("95 %", interval(difference.return_interval)),
                ("success", format!("{:+.3}", difference.success_rate)),
                ("95 %", interval(difference.success_interval)),
            ]
        }))
    }
}

/// Returns a table of mean returns, one row per game.
fn transfer(all: &[GameScores]) -> TextTable {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    let mean = |scores: &PlayerScores| scores.play.return_mean;
    TextTable::of(all.iter().map(|game| {
        let mut row = vec![("", game.name.clone())];
        row.push(("random player", number(game.random.as_ref().map(mean))));
        let players = game.players.iter();
        row.extend(players.map(|scores| (&*scores.player, number(Some(mean(scores))))));
        row.push(("scripted player", number(game.scripted.as_ref().map(mean))));
        row.push(("best possible", number(game.best_possible)));
        row
    }))
}
