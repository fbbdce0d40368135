//! Text games for language agents.
//!
//! A [`Kind`] is a built-in game before its options are chosen; [`GAMES`] lists them. Configured, it is a [`Scenario`],
//! which starts episodes: each is a running [`Game`] of one or more agents. An episode starts from two seeds. The
//! **scene** determines its first state, the **luck** determines chance after that. Games have no step limit of their
//! own: a referee stops the episode, by default after [`Scenario::step_limit`] rounds.
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
//! `CONTRIBUTING.md` says how to add a game. A game that is known only at run time, for instance one in another process,
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

use std::sync::LazyLock;

use serde_json::Value;
use thiserror::Error;

pub use options::{
    DeclaredOption, DeclaredOptions, OptionRange, OptionsError, described, refused, suggestion,
    wrong,
};
pub use picture::{Legend, Role};
pub use planes::Planes;

/// The result of one round for one agent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The game's own reward for this round.
    pub reward: f64,
    /// Whether the rules ended this agent's episode. A step limit does not set it.
    pub over: bool,
}

impl Outcome {
    /// The outcome of every round after the agent's episode is over.
    pub(crate) const AFTER_THE_END: Outcome = Outcome {
        reward: 0.0,
        over: true,
    };
}

/// A game cannot continue, for instance because its process has ended or a file is missing.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{game}: {problem}")]
pub struct GameError {
    /// The game.
    pub game: String,
    /// The problem, with a hint if there is one.
    pub problem: String,
}

impl GameError {
    /// Makes the error that `game` cannot continue because of `problem`.
    pub fn new(game: impl Into<String>, problem: impl Into<String>) -> GameError {
        GameError {
            game: game.into(),
            problem: problem.into(),
        }
    }
}

/// A running episode. Agents are numbered from 0 to [`Scenario::agents`] - 1.
///
/// # Errors
/// [`Game::observe`], [`Game::key`], [`Game::map`], [`Game::planes`] and [`Game::play`] fail if the game cannot continue, for instance
/// because its process has ended. The episode cannot be used after that.
pub trait Game: Send {
    /// Returns the current state as this agent sees it, as text.
    fn observe(&self, agent: usize) -> Result<String, GameError>;

    /// Returns a short name of the whole state, with the agents in the order in which this agent sees them. States with
    /// equal keys are equal, also where an observation shows only a part of them; credit is assigned by key. The default
    /// is the observation.
    fn key(&self, agent: usize) -> Result<String, GameError> {
        self.observe(agent)
    }

    /// Returns the part of the key that does not depend on the game's probes. Training and held-out scenes are divided
    /// by it, so a map that is held out in one of them is held out in all. The default is the key.
    fn map(&self, agent: usize) -> Result<String, GameError> {
        self.key(agent)
    }

    /// Returns the state as one-hot planes of the board as this agent sees it, for players that do not read text. They
    /// hold the content of the observation except for what is constant in the scenario. The number of remaining turns
    /// belongs to the referee and is not among them. `None` if the game has no planes.
    fn planes(&self, _agent: usize) -> Result<Option<Planes>, GameError> {
        Ok(None)
    }

    /// Plays one round. `actions` has one entry per agent: an index into [`Scenario::actions`], or `None` for an
    /// unreadable reply. With `None` the agent does not move, but the round takes place and counts. Entries of agents
    /// whose episode is over are ignored.
    ///
    /// Returns one outcome per agent. After an agent's episode is over, `over` stays true and the reward is 0. After all
    /// episodes are over, nothing changes.
    ///
    /// # Panics
    /// If the number of actions is not the number of agents, or an action is out of range.
    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError>;

    /// Whether a time limit of the game's own ended the episode, and not its rules.
    fn is_truncated(&self) -> bool {
        false
    }

    /// Whether the agent's episode counts as a success in the current state.
    fn succeeded(&self, agent: usize) -> bool;

    /// Returns why the rules ended this agent's episode, in a few words such as "fell into a hole". `None` if it is not
    /// over, or the reason is not known.
    fn ending(&self, _agent: usize) -> Option<&'static str> {
        None
    }

    /// Returns the actions between which the game's scripted player chooses, as ascending indices into
    /// [`Scenario::actions`]; at least one. `None` if the game has no scripted player. The page of the game describes
    /// its strength.
    fn best_actions(&self, _agent: usize) -> Option<Vec<usize>> {
        None
    }

    /// Returns the highest expected return of this agent from this state within the scenario's step limit, if it is
    /// known exactly.
    fn optimum(&self, _agent: usize) -> Option<f64> {
        None
    }

    /// Returns the actions between which the scripted player would choose under the game's usual instructions, if those
    /// of this scenario have another meaning. A player that takes them instead of [`Game::best_actions`] acts by habit
    /// and ignores its instructions. `None` if the meaning is the usual one or the game has no scripted player.
    fn habit(&self, _agent: usize) -> Option<Vec<usize>> {
        None
    }

    /// Returns a copy of the game in the same state, whose chance is determined by `luck` from here on. Search players
    /// try moves in it without seeing the future. `None` if the game cannot be copied.
    fn fork(&self, _luck: u64) -> Option<Box<dyn Game>> {
        None
    }

    /// Receives the text of an agent before the [`Game::play`] it belongs to. Called only if [`Scenario::takes_text`].
    fn hear(&mut self, _agent: usize, _text: &str) {}
}

/// A configured game, ready to start episodes.
pub trait Scenario: Send + Sync + std::fmt::Debug {
    /// Returns the name of the game.
    fn name(&self) -> &str;

    /// Returns the rules that all agents read. They do not describe the form of a reply.
    fn rules(&self) -> String;

    /// Returns the action words, at least one. They are distinct and the same for all agents.
    fn actions(&self) -> &[String];

    /// Whether an agent replies with any text, which [`Game::hear`] receives. Its one action then stands for a text.
    fn takes_text(&self) -> bool {
        false
    }

    /// Returns the number of agents in an episode, at least 1.
    fn agents(&self) -> usize {
        1
    }

    /// Starts an episode. Equal seeds give equal games; `luck` does not change the first state.
    ///
    /// # Errors
    /// If the game cannot be started, for instance because it needs a file or a program that is missing.
    fn start(&self, scene: u64, luck: u64) -> Result<Box<dyn Game>, GameError>;

    /// Returns the lowest and the highest reward of one round for one agent, if known.
    fn reward_bounds(&self) -> Option<(f64, f64)> {
        None
    }

    /// Returns the number of rounds after which a referee stops an episode by default, at least 1.
    fn step_limit(&self) -> usize;

    /// Returns the options in force as a JSON object without nulls. Options that change the instructions are left out if
    /// they have their defaults. Configuring the game with this object gives the same scenario.
    fn options(&self) -> Value;

    /// Returns the legend of the game's pictures for all of its sets of signs. Without pictures it is empty.
    fn legend(&self) -> Legend {
        |_| None
    }
}

/// A built-in game.
#[derive(Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// A description in one sentence.
    pub summary: &'static str,
    /// Its options.
    pub options: &'static [DeclaredOption],
    /// Its variants.
    pub variants: &'static [GameVariant],
    /// Its semantic probes.
    pub probes: &'static [SemanticProbe],
    /// Makes a scenario from a JSON object of options. Options that are left out have their defaults.
    pub configure: fn(&Value) -> Result<Box<dyn Scenario>, OptionsError>,
}

/// A game with some options set, under a name of its own.
#[derive(Debug, Clone, Copy)]
pub struct GameVariant {
    /// Its name: the game's, a dash, and its own.
    pub name: &'static str,
    /// A description in one sentence.
    pub summary: &'static str,
    /// Returns the options that it sets as a JSON object.
    pub options: fn() -> Value,
}

/// A semantic probe: changed instructions, and rewards that change with them. An agent that has learned the game and does
/// not read its instructions plays on as before.
#[derive(Debug, Clone, Copy)]
pub struct SemanticProbe {
    /// Its name, unique in its game.
    pub name: &'static str,
    /// A description of the change in one sentence.
    pub summary: &'static str,
    /// How easily the change is missed.
    pub subtlety: Subtlety,
    /// Returns the options that it sets, in any variant, as a JSON object.
    pub options: fn() -> Value,
}

/// How easily a change of the instructions is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subtlety {
    /// The explicit opposite of the usual instructions.
    Blatant,
    /// An additional rule, or another value.
    Plain,
    /// The same game in other words or signs, or an inconspicuous rule.
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

/// Returns the game of this name.
///
/// # Errors
/// If there is none; the error lists all games and variants. Variants are found by [`find_variant`].
pub fn find(name: &str) -> Result<&'static Kind, OptionsError> {
    let unknown = || {
        let mut known = Vec::new();
        for kind in GAMES {
            if kind.variants.iter().any(|it| it.name == name) {
                let kind = kind.name;
                return OptionsError(format!("`{name}` is a variant of {kind}: see find_variant"));
            }
            known.push(kind.name.to_owned());
            known.extend(kind.variants.iter().map(|it| it.name.to_owned()));
        }
        let (near, all) = (suggestion(name, &known), known.join(", "));
        OptionsError(format!("unknown game `{name}`{near}; the games are {all}"))
    };
    let kind = GAMES.iter().find(|kind| kind.name == name);
    kind.ok_or_else(unknown)
}

/// Returns the game of this name and an empty JSON object, or the game of the variant of this name and its options.
///
/// # Errors
/// If there is none; the error lists all games and variants.
pub fn find_variant(name: &str) -> Result<(&'static Kind, Value), OptionsError> {
    for kind in GAMES {
        if let Some(variant) = kind.variants.iter().find(|variant| variant.name == name) {
            return Ok((kind, (variant.options)()));
        }
    }
    Ok((find(name)?, Value::Object(serde_json::Map::new())))
}

impl Kind {
    /// Returns the probe of this name.
    pub fn probe(&self, name: &str) -> Option<&'static SemanticProbe> {
        self.probes.iter().find(|probe| probe.name == name)
    }
}

/// The action words of several games.
static UP_DOWN_LEFT_RIGHT: LazyLock<[String; 4]> =
    LazyLock::new(|| ["up", "down", "left", "right"].map(str::to_owned));

/// The places of left and right in them.
const LEFT_RIGHT: [usize; 2] = [2, 3];

/// Returns the move that an action stands for, where the words left and right can be swapped, and the inverse.
fn meant(action: usize, swapped: bool, [left, right]: [usize; 2]) -> usize {
    match action {
        _ if !swapped => action,
        _ if action == left => right,
        _ if action == right => left,
        _ => action,
    }
}

/// Returns the actions that stand for `moves` (see [`meant`]) in ascending order.
fn actions_for(mut moves: Vec<usize>, swapped: bool, left_right: [usize; 2]) -> Vec<usize> {
    for way in &mut moves {
        *way = meant(*way, swapped, left_right);
    }
    moves.sort_unstable();
    moves
}

/// Panics unless there is one entry per agent, and the entries of agents that still play are actions.
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
