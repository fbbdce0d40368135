//! Text games for language agents.
//!
//! A [`Kind`] is a game with its options open; [`GAMES`] lists them. Configured, it is a [`Scenario`], and a scenario
//! starts episodes, each a running [`Game`]. An episode begins from two seeds: the **scene** fixes the state it starts
//! from, the **luck** fixes what chance does afterwards. Games know no step limit of their own: a referee stops the
//! episode, and [`Scenario::step_limit`] is only what it goes by unless told otherwise.
//!
//! ```
//! let lake = lapwing_env::find("frozen-lake").unwrap();
//! let scenario = (lake.configure)(&serde_json::json!({ "map": ["SF", "HG"] })).unwrap();
//! let mut game = scenario.start(0, 0);
//! assert_eq!(game.observe(), "P _\nO G");
//!
//! let right = scenario.actions().iter().position(|&word| word == "right");
//! let down = scenario.actions().iter().position(|&word| word == "down");
//! assert!(!game.play(right).over);
//! assert_eq!(game.play(down).reward, 1.0);
//! assert!(game.succeeded());
//! ```
//!
//! To add a game: write `src/NAME.rs`, whose head is its page (description, actions, observation, start, rewards, end,
//! options, departures from its source), and add its line to `GAMES`. The tests run over that list.

mod frozen_lake;
mod options;
pub mod rng;
mod snake;

use serde_json::Value;

pub use options::{OptionsError, UnknownGame, suggestion};

/// What one step of a game brought.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// The game's own reward for this step.
    pub reward: f64,
    /// Whether the rules ended the episode (terminated; a step limit never shows here).
    pub over: bool,
}

/// One running episode.
pub trait Game: Send {
    /// The current state, told in words and pictures. It holds all that the agent gets to see.
    fn observe(&self) -> String;

    /// Plays one step. `action` is a place in [`Scenario::actions`]; `None` stands for a reply that could not be read:
    /// the agent does not move, the world goes on, the step counts.
    ///
    /// After the end nothing changes any more: the reward is 0 and `over` stays true.
    ///
    /// # Panics
    /// If `action` is not a place in the list of actions.
    fn play(&mut self, action: Option<usize>) -> Turn;

    /// Whether the episode, as it stands, counts as a success.
    fn succeeded(&self) -> bool;

    /// The actions among which the game's scripted player chooses, as places in [`Scenario::actions`]; never empty.
    /// How good that player is, the page of the game says.
    fn best_actions(&self) -> Vec<usize>;
}

/// A configured game, ready to start episodes.
pub trait Scenario: Send + Sync + std::fmt::Debug {
    /// The rules, for the agent to read. How to reply is not among them.
    fn rules(&self) -> String;

    /// The words for the actions, all different.
    fn actions(&self) -> &'static [&'static str];

    /// Starts an episode. The same two seeds give the same game; `luck` has no part in the first state.
    fn start(&self, scene: u64, luck: u64) -> Box<dyn Game>;

    /// The lowest and the highest reward that a single step can bring.
    fn reward_bounds(&self) -> (f64, f64);

    /// After how many steps a referee stops an episode, unless told otherwise.
    fn step_limit(&self) -> usize;

    /// Every option with the value in force, as a JSON object without nulls. Configuring with it gives the same scenario.
    fn options(&self) -> Value;
}

/// A game that can be configured.
#[derive(Debug)]
pub struct Kind {
    /// The name by which it is asked for.
    pub name: &'static str,
    /// What it is, in one sentence.
    pub summary: &'static str,
    /// The names of its options, those without a default too.
    pub options: fn() -> Vec<String>,
    /// Makes a scenario from a JSON object of options; those left out take their defaults.
    pub configure: fn(&Value) -> Result<Box<dyn Scenario>, OptionsError>,
}

/// Every game there is.
pub static GAMES: &[Kind] = &[frozen_lake::KIND, snake::KIND];

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
