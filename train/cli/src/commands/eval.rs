//! `lapwing eval`: how good a model is, beside others on the same scenes and players that need no model.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_lab::scores::{Difference, Scores};
use lapwing_learn::config::LearnerKind;
use lapwing_learn::value::learner::NetworkLearner;
use lapwing_play::Progress;
use lapwing_play::config::Game;
use lapwing_play::evaluate::{baseline_episodes, optimum, play_against, play_evaluation};
use lapwing_play::metrics::{PlayMetrics, Yardsticks};
use lapwing_play::players::search::Search;
use lapwing_play::scenes::Scenes;
use lapwing_play::{Episode, Framing, Player, Referee, Seat};
use lapwing_tensor::{Gpu, GpuError};
use lapwing_train::Config;
use lapwing_train::state::{Purpose, State};
use serde::Serialize;
use serde_json::Value;

use super::agents::{Agent, after_and_before, other};
use super::api;
use super::human::{self, Human};
use super::opponent::Opponent;
use crate::args;
use crate::commands::subject::InputError;
use crate::hub::hub;
use crate::interrupt;
use crate::out;
use crate::progress::Terminal;
use crate::table::Table;

/// Said of a game with a single scene.
pub const NOT_DIVIDED: &str =
    "this game has too few scenes to hold some out: the evaluation plays what is trained on";

/// What `--json` prints. What is said of the first game and the first player stands at the top, too.
#[derive(Serialize)]
struct Examined<'a> {
    version: &'a str,
    game: &'a str,
    model: &'a str,
    adapter: &'a str,
    seed: u64,
    temperature: f64,
    #[serde(flatten)]
    first: &'a Scores,
    yardsticks: &'a Yardsticks,
    games: &'a [Played],
}

/// What was played of one game.
#[derive(Serialize)]
pub struct Played {
    /// what was asked for
    name: String,
    game: String,
    options: Value,
    /// those that were asked for, the first of them first
    players: Vec<Scores>,
    /// the first against each of the others
    differences: Vec<Difference>,
    #[serde(skip)]
    yardsticks: Yardsticks,
    random: Option<Scores>,
    scripted: Option<Scores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<Scores>,
    #[serde(skip_serializing_if = "Option::is_none")]
    human: Option<Human>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_possible: Option<f64>,
}

/// Plays the held-out episodes and prints the result.
pub fn eval(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    arguments: &args::Eval,
) -> Result<()> {
    let config = arguments.config()?;
    let games = arguments.games(&config)?;
    let names: Vec<_> = games.iter().map(|game| &game.name).collect();
    interrupt::end_with_children(&names)?;
    let scenarios = games.iter().map(Game::scenario);
    let scenarios: Vec<Box<dyn Scenario>> = scenarios.collect::<Result<_, _>>()?;
    let mut file = arguments.out.as_deref().map(create).transpose()?;
    let (model, mut all) = match arguments.player.player {
        None if config.learner != LearnerKind::MsGrpo => {
            by_networks(open_gpu, &scenarios, &config, arguments)?
        }
        None => by_models(open_gpu, scenarios, &config, arguments)?,
        Some(_) => by_another(&scenarios, &config, arguments)?,
    };
    if let Some(file) = &mut file {
        all.iter().try_for_each(|played| played.write(file))?;
        file.flush()?;
    }
    // Two presets of one game are two rows.
    for (played, name) in all.iter_mut().zip(&arguments.games) {
        played.name.clone_from(name);
    }
    let first = &all[0];
    if arguments.json {
        let examined = Examined {
            version: env!("CARGO_PKG_VERSION"),
            game: &first.game,
            model: &model,
            adapter: &(config.model.adapter.as_deref().unwrap_or("".as_ref())).to_string_lossy(),
            seed: config.eval.seed,
            temperature: config.eval.temperature,
            first: &first.players[0],
            yardsticks: &first.yardsticks,
            games: &all,
        };
        writeln!(out::raw(), "{}", serde_json::to_string(&examined)?)?;
        return Ok(());
    }
    let draw = |table: Table| match arguments.markdown {
        true => table.markdown(),
        false => table.text(),
    };
    let mut text = String::new();
    for played in &all {
        if all.len() > 1 {
            text += &format!("{}\n\n", played.title());
        }
        text += &draw(played.table());
        if !played.differences.is_empty() {
            text += &format!("\n{}", draw(played.ahead()));
        }
        if all.len() > 1 {
            text.push('\n');
        }
    }
    if all.len() > 1 {
        text += &format!("mean return in each game\n\n{}", draw(transfer(&all)));
    }
    write!(out::shown(), "{text}")?;
    Ok(())
}

/// A new file: what is there already stays.
fn create(path: &Path) -> Result<BufWriter<File>> {
    let file = File::create_new(path).map_err(|error| {
        let problem = match error.kind() {
            io::ErrorKind::AlreadyExists => "it exists; name another file".to_owned(),
            _ => error.to_string(),
        };
        InputError::new(format!("--out {}", path.display()), problem)
    })?;
    Ok(BufWriter::new(file))
}

/// What the model and its adapters make of these games. Tells what the model is called, too.
fn by_models(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    scenarios: Vec<Box<dyn Scenario>>,
    config: &Config,
    arguments: &args::Eval,
) -> Result<(String, Vec<Played>)> {
    let terminal = Terminal::new();
    let gpu = open_gpu()?;
    let mut state = State::with_games(
        &gpu,
        hub(),
        scenarios,
        config.clone(),
        Purpose::Play,
        &terminal,
    )?;
    let agents = agents(&state, arguments, &terminal)?;
    let mut all = Vec::new();
    for world in 0..state.learner.worlds.len() {
        let scenario = &*state.learner.worlds[world].scenario;
        let load = |who: &String| Opponent::load(who, &gpu, scenario, config, &terminal);
        let mut opponent = arguments.opponent.as_ref().map(load).transpose()?;
        let mut other = opponent.as_mut().map(|o| o.player(config.eval.temperature));
        let mut others: Vec<&mut dyn Player> = Vec::new();
        if let Some(other) = &mut other {
            others.push(&mut **other);
        }
        all.push(of_game(
            &mut state,
            world,
            &agents,
            &mut others,
            arguments,
            &terminal,
        )?);
    }
    Ok((state.model_name, all))
}

/// What a network that reads no words makes of them. It is made for boards of one shape, which another game seldom has.
fn by_networks(
    open_gpu: impl FnOnce() -> Result<Gpu, GpuError>,
    scenarios: &[Box<dyn Scenario>],
    config: &Config,
    arguments: &args::Eval,
) -> Result<(String, Vec<Played>)> {
    let name = config.learner.name();
    alone(config, !arguments.against.is_empty(), "--against")?;
    alone(config, arguments.opponent.is_some(), "--opponent")?;
    let terminal = Terminal::new();
    if arguments.greedy {
        terminal.note("--greedy has no effect: a network always takes the best action");
    }
    let gpu = open_gpu()?;
    let mut all = Vec::new();
    for scenario in scenarios {
        let mut config = config.clone();
        config.game = Game::of(&**scenario);
        let trained = NetworkLearner::trained(&gpu, config.game.scenario()?, &config.network())?;
        let scenes = Scenes::of(&**scenario)?;
        if !scenes.divided() {
            terminal.note(NOT_DIVIDED);
        }
        let seats = scenes.evaluation(&**scenario, config.eval.seed, config.eval.episodes)?;
        let referee = Referee {
            step_limit: scenario.step_limit(),
            format_penalty: 0.0,
        };
        let mut player = trained.greedy_player();
        let episodes = play_evaluation(&**scenario, &referee, &seats, &mut player, &terminal)?;
        let (game, actions) = (scenario.name(), scenario.actions());
        let scores = vec![Scores::of(game, name, actions, &seats, &episodes)];
        let search = arguments.search;
        all.push(played(
            &**scenario,
            &referee,
            &seats,
            &mut [],
            &config,
            scores,
            search,
        )?);
    }
    Ok((name.to_owned(), all))
}

/// Refuses what would set a network beside language models.
pub fn alone(config: &Config, asked: bool, what: &str) -> Result<(), InputError> {
    let name = config.learner.name();
    match asked {
        true => Err(InputError::new(
            what,
            format!("takes adapters of language models, and {name} has none: leave it out"),
        )),
        false => Ok(()),
    }
}

/// What somebody else than a model of ours makes of them.
fn by_another(
    scenarios: &[Box<dyn Scenario>],
    config: &Config,
    arguments: &args::Eval,
) -> Result<(String, Vec<Played>)> {
    let name = arguments.player.name();
    let mut all = Vec::new();
    for scenario in scenarios {
        let terminal = Terminal::new();
        let scenes = Scenes::of(&**scenario)?;
        if !scenes.divided() {
            terminal.note(NOT_DIVIDED);
        }
        let seats = scenes.evaluation(&**scenario, config.eval.seed, config.eval.episodes)?;
        let referee = Referee {
            step_limit: scenario.step_limit(),
            format_penalty: config.policy.format_penalty,
        };
        let mut players = Vec::new();
        for (temperature, way) in ways(config, arguments) {
            let mut config = config.clone();
            config.eval.temperature = temperature;
            let framing = Framing::new(&**scenario, &config.policy)?;
            let mut player = api::player(&arguments.player, framing, &config)?;
            let episodes = play_evaluation(&**scenario, &referee, &seats, &mut player, &terminal);
            // What was paid for is told even if it was for nothing.
            if let Some(account) = player.account() {
                terminal.note(&format!("API: {account}"));
            }
            let (game, name) = (scenario.name(), format!("{name}{way}"));
            let actions = scenario.actions();
            players.push(Scores::of(game, &name, actions, &seats, &episodes?));
        }
        let search = arguments.search;
        all.push(played(
            &**scenario,
            &referee,
            &seats,
            &mut [],
            config,
            players,
            search,
        )?);
    }
    Ok((name, all))
}

/// The temperatures at which each plays, and what that is called.
fn ways(config: &Config, arguments: &args::Eval) -> Vec<(f64, &'static str)> {
    let mut ways = vec![(config.eval.temperature, "")];
    if arguments.greedy && config.eval.temperature > 0.0 {
        ways.push((0.0, ", greedy"));
    }
    ways
}

/// Who plays: what the config names, those that it is to be held against, and what it was before it was trained.
fn agents(state: &State, arguments: &args::Eval, progress: &dyn Progress) -> Result<Vec<Agent>> {
    let (first, before) = after_and_before(state, progress)?;
    let others = arguments.against.iter();
    let others = others.map(|dir| other(dir, state, progress));
    let mut agents = vec![first];
    agents.extend(others.collect::<Result<Vec<_>>>()?);
    agents.extend(before);
    Ok(agents)
}

/// Everybody's play in one of the games.
fn of_game(
    state: &mut State,
    world: usize,
    agents: &[Agent],
    others: &mut [&mut dyn Player],
    arguments: &args::Eval,
    terminal: &Terminal,
) -> Result<Played> {
    let seats = state.seats(world)?;
    if !state.learner.worlds[world].scenes.divided() {
        terminal.note(NOT_DIVIDED);
    }
    let ways = ways(&state.config, arguments);
    let mut players = Vec::new();
    for agent in agents {
        agent.takes_over(state);
        for &(temperature, way) in &ways {
            let game = state.learner.worlds[world].name.clone();
            let name = format!("{}{way}", agent.name);
            let (scenario, referee, mut player) = state.seated(world, temperature);
            let player = &mut player;
            let episodes = play_against(scenario, &referee, &seats, player, others, terminal)?;
            let actions = scenario.actions();
            players.push(Scores::of(&game, &name, actions, &seats, &episodes));
        }
    }
    agents[0].takes_over(state);
    let world = &state.learner.worlds[world];
    let referee = world.referee(&state.config.policy);
    let (scenario, search) = (&*world.scenario, arguments.search);
    played(
        scenario,
        &referee,
        &seats,
        others,
        &state.config,
        players,
        search,
    )
}

/// These players' results beside those that need no model.
fn played(
    scenario: &dyn Scenario,
    referee: &Referee,
    seats: &[Seat],
    others: &mut [&mut dyn Player],
    config: &Config,
    players: Vec<Scores>,
    search: Option<usize>,
) -> Result<Played> {
    let game = scenario.name();
    let scores = |name: &str, episodes: &[Episode]| {
        Scores::of(game, name, scenario.actions(), seats, episodes)
    };
    let baseline_episodes = baseline_episodes(scenario, referee, seats, others)?;
    let random = baseline_episodes
        .random
        .map(|episodes| scores("random player", &episodes));
    let scripted = baseline_episodes
        .scripted
        .map(|episodes| scores("scripted player", &episodes));
    let mut searched = None;
    if let Some(tries) = search {
        match Search::new(scenario, tries)? {
            Some(mut player) => {
                let player = &mut player;
                let episodes = play_against(scenario, referee, seats, player, others, &())?;
                let name = format!("search, {tries} tries an action");
                searched = Some(scores(&name, &episodes));
            }
            None => out::note(&format!(
                "--search has no effect on {game}: it cannot be copied, or has no scripted player"
            )),
        }
    }
    // Known for who meets nobody, or itself.
    let best_possible = match others {
        [] => optimum(scenario, seats)?,
        _ => None,
    };
    let play = |scores: &Option<Scores>| scores.as_ref().map(|scores| scores.play.clone());
    let first = &players[0];
    let others = players[1..].iter();
    Ok(Played {
        name: game.to_owned(),
        game: game.to_owned(),
        options: scenario.options(),
        differences: others
            .map(|other| Difference::between(first, other))
            .collect(),
        yardsticks: Yardsticks {
            game: game.to_owned(),
            seed: config.eval.seed,
            random: play(&random),
            scripted: play(&scripted),
            best_possible,
        },
        players,
        random,
        scripted,
        search: searched,
        human: human::of(scenario),
        best_possible,
    })
}

impl Played {
    /// The game and what it is played with.
    fn title(&self) -> String {
        let options = self.options.as_object().into_iter().flatten();
        let options: Vec<String> = options
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        format!("{}: {}", self.name, options.join(", "))
    }

    /// Those who played the scenes, in the order of the table.
    fn all(&self) -> impl Iterator<Item = &Scores> {
        let before = self.random.iter().chain(&self.players);
        before.chain(&self.scripted).chain(&self.search)
    }

    fn write(&self, file: &mut impl Write) -> Result<()> {
        for scene in self.all().flat_map(|scores| &scores.scenes) {
            writeln!(file, "{}", serde_json::to_string(scene)?)?;
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            "",
            "success",
            "95 %",
            "return",
            "std",
            "95 %",
            "with penalty",
            "valid",
            "length",
            "episodes",
        ]);
        for scores in self.all() {
            let play = &scores.play;
            table.row([
                scores.player.clone(),
                format!("{:.3}", play.success_rate),
                between(scores.success_interval),
                format!("{:.3}", play.return_mean),
                format!("{:.3}", play.return_std),
                between(scores.return_interval),
                format!("{:.3}", play.composite_return_mean),
                format!("{:.2}", play.valid_action_rate),
                format!("{:.1}", play.episode_length_mean),
                play.episodes.to_string(),
            ]);
        }
        if let Some(human) = &self.human {
            table.row(human.cells());
        }
        if let Some(best) = self.best_possible {
            let mut cells: [String; 10] = Default::default();
            (cells[0], cells[3]) = ("best possible".to_owned(), format!("{best:.3}"));
            table.row(cells);
        }
        table
    }

    /// How far the first is ahead of the others.
    fn ahead(&self) -> Table {
        let first = &self.players[0].player;
        let head = format!("{first}, ahead of");
        let mut table = Table::new(&[&head, "return by", "95 %", "success by", "95 %"]);
        for difference in &self.differences {
            table.row([
                difference.against.clone(),
                format!("{:+.3}", difference.return_mean),
                between(difference.return_interval),
                format!("{:+.3}", difference.success_rate),
                between(difference.success_interval),
            ]);
        }
        table
    }
}

/// Games by players: the mean returns.
fn transfer(all: &[Played]) -> Table {
    let mut head = vec!["", "random player"];
    head.extend(all[0].players.iter().map(|scores| &*scores.player));
    head.extend(["scripted player", "best possible"]);
    let mut table = Table::new(&head);
    let mean = |play: &PlayMetrics| format!("{:.3}", play.return_mean);
    let or_not = |scores: &Option<Scores>| scores.as_ref().map(|s| mean(&s.play));
    for played in all {
        let mut cells = vec![played.name.clone()];
        cells.push(or_not(&played.random).unwrap_or_default());
        cells.extend(played.players.iter().map(|scores| mean(&scores.play)));
        cells.push(or_not(&played.scripted).unwrap_or_default());
        let best = played.best_possible.map(|best| format!("{best:.3}"));
        cells.push(best.unwrap_or_default());
        table.row(cells);
    }
    table
}

/// An interval.
pub fn between([low, high]: [f64; 2]) -> String {
    format!("{low:.3} to {high:.3}")
}
