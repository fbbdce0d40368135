//! Text games for language agents.
//!
//! A [`Kind`] is a built-in game with its options open; [`GAMES`] lists them. Configured, it is a [`Scenario`], and a
//! scenario starts episodes, each a running [`Game`] of one or more agents. An episode begins from two seeds: the
//! **scene** fixes the state it starts from, the **luck** fixes what chance does afterwards. Games know no step limit of
//! their own: a referee stops the episode, and [`Scenario::step_limit`] is only what it goes by unless told otherwise.
//!
//! ```
//! let lake = lapwing_env::find("frozen-lake")?;
//! let scenario = (lake.configure)(&serde_json::json!({ "map": ["SF", "HG"] }))?;
//! let mut game = scenario.start(0, 0)?;
//! assert_eq!(game.observe(0)?, "P _\nO G");
//!
//! let right = scenario.actions().iter().position(|word| word == "right");
//! let down = scenario.actions().iter().position(|word| word == "down");
//! assert!(!game.play(&[right])?[0].over);
//! assert_eq!(game.play(&[down])?[0].reward, 1.0);
//! assert!(game.succeeded(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To add a game: write `src/NAME.rs` (2048's is `twenty48.rs`, as a module's name is a word), whose head is its page
//! (description, actions, observation, start, rewards, end, options, departures from its source), and add its line to
//! `GAMES`. The tests run over that list. A game that is known at run time only (one that lives in another process, say)
//! implements [`Scenario`] and [`Game`] and is in no list.

mod frozen_lake;
mod options;
mod picture;
mod planes;
pub mod rng;
mod rooms;
mod snake;
mod sokoban;
mod twenty48;

use serde_json::Value;
use thiserror::Error;

pub use options::{
    GameOption, OptionsError, UnknownGame, in_force, read as read_options, refused, suggestion,
};
pub use planes::Planes;

/// What one round brought to one agent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The game's own reward for this round.
    pub reward: f64,
    /// Whether the rules ended this agent's episode (terminated; a step limit never shows here).
    pub over: bool,
}

impl Outcome {
    /// What every further round brings to an agent whose episode is over.
    pub(crate) const AFTER_THE_END: Outcome = Outcome {
        reward: 0.0,
        over: true,
    };
}

/// A game cannot go on: its process has died, a file is missing.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{game}: {problem}")]
pub struct GameError {
    /// The game.
    pub game: String,
    /// What is wrong, and the cure if there is one.
    pub problem: String,
}

impl GameError {
    /// `game` cannot go on because of `problem`.
    pub fn new(game: impl Into<String>, problem: impl Into<String>) -> GameError {
        GameError {
            game: game.into(),
            problem: problem.into(),
        }
    }
}

/// One running episode. Agents are numbered from 0 to [`Scenario::agents`] - 1.
///
/// # Errors
/// [`Game::observe`], [`Game::key`], [`Game::planes`] and [`Game::play`] fail if the game cannot go on, for instance because the process
/// in which it runs has died. After that the episode is of no use.
pub trait Game: Send {
    /// The current state as this agent meets it, told in words and pictures. It holds all that the agent gets to see.
    fn observe(&self, agent: usize) -> Result<String, GameError>;

    /// Names the state as this agent meets it: equal keys, equal states. States are merged and given credit by it. It
    /// is the observation, unless a game can say it shorter.
    fn key(&self, agent: usize) -> Result<String, GameError> {
        self.observe(agent)
    }

    /// The same state as numbers: one-hot planes of the board as this agent sees it, for players that do not read. They
    /// hold what the observation holds, but for what is the same in all games of the scenario. Turns that are left are
    /// not among it: they are the referee's, and whoever learns from planes adds them. `None` if the game has no board,
    /// or nobody wanted it as numbers yet.
    ///
    /// # Errors
    /// As [`Game::observe`].
    fn planes(&self, agent: usize) -> Result<Option<Planes>, GameError> {
        let _ = agent;
        Ok(None)
    }

    /// Plays one round. `actions` has an entry for each agent, in order: a place in [`Scenario::actions`], or `None`
    /// for a reply that could not be read, where the agent does not move, the world goes on and the step counts.
    /// Entries of agents whose episode is over are ignored.
    ///
    /// The answer has an entry for each agent too. `over` stays true once it is; from the next round on the reward is
    /// 0. When all agents' episodes are over nothing changes any more.
    ///
    /// # Panics
    /// If there are more or fewer actions than agents, or one of them is not a place in the list of actions.
    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError>;

    /// Whether the agent's episode, as it stands, counts as a success.
    fn succeeded(&self, agent: usize) -> bool;

    /// The actions among which the game's scripted player chooses for this agent, as places in [`Scenario::actions`];
    /// never empty. `None` if the game has no scripted player. How good that player is, the page of the game says.
    fn best_actions(&self, agent: usize) -> Option<Vec<usize>> {
        let _ = agent;
        None
    }

    /// The highest return that any player can expect for this agent from this state on, within the scenario's step
    /// limit, if it is known exactly.
    fn optimum(&self, agent: usize) -> Option<f64> {
        let _ = agent;
        None
    }

    /// Where the instructions of this scenario differ from the game's usual ones: what the scripted player would choose
    /// from in this state if they did not. Whoever does that and not what [`Game::best_actions`] says goes by habit and
    /// not by what it was told. `None` if the instructions are the usual ones, or the game has no scripted player.
    fn habit(&self, agent: usize) -> Option<Vec<usize>> {
        let _ = agent;
        None
    }

    /// The same state in a game of its own, in which chance goes by `luck` from here on: for players that try moves
    /// before they make one, and must not see what will happen. `None` if the game cannot be copied.
    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        let _ = luck;
        None
    }

    /// What an agent says, before the [`Game::play`] in which it says it. For scenarios that take any text
    /// ([`Scenario::takes_text`]); others are not told.
    fn hear(&mut self, agent: usize, text: &str) {
        let _ = (agent, text);
    }
}

/// A configured game, ready to start episodes.
pub trait Scenario: Send + Sync + std::fmt::Debug {
    /// The name of the game.
    fn name(&self) -> &str;

    /// The rules, for the agents to read: the same for all of them. How to reply is not among them.
    fn rules(&self) -> String;

    /// The words for the actions, all different. Every agent has all of them.
    fn actions(&self) -> &[String];

    /// Whether an agent may say anything. Its one action then stands for having said something, and what it said comes
    /// through [`Game::hear`].
    fn takes_text(&self) -> bool {
        false
    }

    /// How many agents play in one episode, at least 1.
    fn agents(&self) -> usize {
        1
    }

    /// Starts an episode. The same two seeds give the same game; `luck` has no part in the first state.
    ///
    /// # Errors
    /// If the game cannot be started, for instance because a file or a program that it needs is missing.
    fn start(&self, scene: u64, luck: u64) -> Result<Box<dyn Game>, GameError>;

    /// The lowest and the highest reward that a single round can bring to an agent, if the game knows.
    fn reward_bounds(&self) -> Option<(f64, f64)> {
        None
    }

    /// After how many rounds a referee stops an episode, unless told otherwise.
    fn step_limit(&self) -> usize;

    /// Every option with the value in force, as a JSON object without nulls. What changes the instructions is left out
    /// where they are the usual ones. Configuring with it gives the same scenario.
    fn options(&self) -> Value;
}

/// A built-in game, to be configured.
#[derive(Debug)]
pub struct Kind {
    /// The name by which it is asked for.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub summary: &'static str,
    /// Its options, those without a default too.
    pub options: &'static [GameOption],
    /// Settings of its options that have names of their own.
    pub variants: &'static [Variant],
    /// Changes of its instructions and rewards that show who reads them.
    pub probes: &'static [Probe],
    /// Makes a scenario from a JSON object of options; those left out take their defaults.
    pub configure: fn(&Value) -> Result<Box<dyn Scenario>, OptionsError>,
}

/// A setting of a game's options with a name of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// The name by which it is asked for: the game's, a dash, and its own.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub summary: &'static str,
    /// The options that it sets: a JSON object.
    pub options: &'static str,
}

/// A semantic probe: instructions that differ from those that a game is usually played by, and rewards that differ with
/// them. Who has learned the game and forgotten to read plays on as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The name by which it is asked for beside the game's.
    pub name: &'static str,
    /// What is changed, in one sentence.
    pub summary: &'static str,
    /// How easily the change is missed.
    pub subtlety: Subtlety,
    /// The options that it sets, whatever they were: a JSON object.
    pub options: &'static str,
}

/// How easily a change of the instructions is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subtlety {
    /// What was good is bad, and the prompt says so in so many words.
    Blatant,
    /// A rule more, or another value.
    Plain,
    /// The same game in other words or signs, or a rule that says little.
    Subtle,
}

/// Every built-in game.
pub static GAMES: &[Kind] = &[
    frozen_lake::KIND,
    snake::KIND,
    sokoban::KIND,
    rooms::KIND,
    twenty48::KIND,
];

/// Finds a game by its name.
///
/// # Errors
/// If there is none of that name; the error lists those there are.
pub fn find(name: &str) -> Result<&'static Kind, UnknownGame> {
    GAMES
        .iter()
        .find(|kind| kind.name == name)
        .ok_or_else(|| UnknownGame::new(name))
}

/// Finds a game by its name or by that of one of its variants, and the options that the variant sets, as a JSON object.
///
/// # Errors
/// If there is none of that name; the error lists those there are.
pub fn find_variant(name: &str) -> Result<(&'static Kind, Value), UnknownGame> {
    if let Ok(kind) = find(name) {
        return Ok((kind, Value::Object(serde_json::Map::new())));
    }
    for kind in GAMES {
        if let Some(variant) = kind.variants.iter().find(|variant| variant.name == name) {
            return Ok((kind, set(variant.options)));
        }
    }
    Err(UnknownGame::new(name))
}

impl Kind {
    /// Finds one of the game's probes, and the options that it sets, as a JSON object.
    pub fn probe(&self, name: &str) -> Option<(&'static Probe, Value)> {
        let probe = self.probes.iter().find(|probe| probe.name == name)?;
        Some((probe, set(probe.options)))
    }
}

/// The options of a variant or a probe.
fn set(options: &str) -> Value {
    serde_json::from_str(options).expect("the options of variants and probes are JSON objects")
}

/// Panics unless there is an entry for each agent in `over`, and an action behind the entry of each that still plays.
fn check_actions(game: &str, actions: &[Option<usize>], over: &[bool], count: usize) {
    assert!(
        actions.len() == over.len(),
        "{game}: {} actions for {} agents",
        actions.len(),
        over.len()
    );
    for (action, _) in actions.iter().zip(over).filter(|(_, over)| !**over) {
        assert!(
            action.is_none_or(|action| action < count),
            "{game}: there is no action {}, only {count}",
            action.unwrap_or_default()
        );
    }
}
