//! The options of Snake. The defaults are those of the paper where it gives them, otherwise the likeliest ones.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use super::board::{Food, SnakeEvent};
use crate::DeclaredOptions;
use crate::OptionRange::{Real, Whole};
use crate::options::{
    LONGEST_EPISODE, LONGEST_SIDE, ListedView, OptionsError, Phrasing, left_out, refused,
    settle_sides,
};

/// A head is shown as one digit.
const MOST_SNAKES: usize = 9;

const MOST_FOOD: usize = LONGEST_SIDE * LONGEST_SIDE;

crate::options! {
    pub(super) struct SnakeOptions;
    /// cells per side of a square board
    size: Option<usize> = Some(10), in Whole(2, LONGEST_SIDE);
    /// cells from left to right, instead of `size`
    width: Option<usize> = None, in Whole(2, LONGEST_SIDE);
    /// cells from top to bottom, instead of `size`
    height: Option<usize> = None, in Whole(2, LONGEST_SIDE);
    /// snakes that agents play; with enemies at most 9
    agents: usize = 1, in Whole(1, MOST_SNAKES);
    /// snakes that the game plays
    enemies: usize = 1, in Whole(0, MOST_SNAKES - 1);
    /// apples on the board
    apples: usize = 5, in Whole(0, MOST_FOOD);
    /// bananas on the board
    bananas: usize = 0, in Whole(0, MOST_FOOD);
    /// fires on the board
    fires: usize = 0, in Whole(0, MOST_FOOD);
    /// reward of an apple
    apple_reward: f64 = 1.0, in Real(-1000.0, 1000.0);
    /// reward of a banana
    banana_reward: f64 = 1.0, in Real(-1000.0, 1000.0);
    /// reward of a fire
    fire_reward: f64 = -1.0, in Real(-1000.0, 1000.0);
    /// reward of the agent's death
    death_reward: f64 = -2.0, in Real(-1000.0, 1000.0);
    /// reward of each round
    step_reward: f64 = -0.01, in Real(-1000.0, 1000.0);
    /// rounds of an episode
    step_limit: usize = 20, in Whole(1, LONGEST_EPISODE);
    /// the picture alone, coordinates alone, the moves from the player to each thing, or coordinates and a key above the
    /// picture
    view: ListedView = ListedView::Board;
    /// how enemies move: at random, or as the scripted player
    opponent: Opponent = Opponent::Random, if changed;
    /// direction in which apples roll, one cell per round; not with fires
    hill: Hill = Hill::None, if changed;
    /// the words left and right swap their meanings, for agents
    swapped: bool = false, if changed;
    /// the signs on the board
    symbols: Phrasing = Phrasing::Usual, if changed;
    /// the words of the rules
    wording: Phrasing = Phrasing::Usual, if changed;
}

/// The player of the enemies: option `opponent`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Opponent {
    Random,
    Greedy,
}

/// The direction in which apples roll: option `hill`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Hill {
    None,
    Down,
    Up,
    Left,
    Right,
}

impl Hill {
    /// Returns the number of the downhill move, and the edge at its end.
    pub(crate) fn way(self) -> Option<(usize, &'static str)> {
        match self {
            Hill::None => None,
            Hill::Up => Some((0, "top")),
            Hill::Down => Some((1, "bottom")),
            Hill::Left => Some((2, "left")),
            Hill::Right => Some((3, "right")),
        }
    }
}

impl SnakeOptions {
    /// Reads the options and settles the size.
    pub(crate) fn checked(given: &Value) -> Result<SnakeOptions, OptionsError> {
        let mut options = SnakeOptions::read(NAME, given)?;
        if options.snakes() > MOST_SNAKES {
            let enemies = options.enemies;
            let wanted = format!(
                "at most {} with `enemies` = {enemies}, {MOST_SNAKES} snakes in all",
                MOST_SNAKES - enemies
            );
            return Err(refused(NAME, "agents", options.agents, &wanted));
        }
        if options.enemies == 0 {
            left_out(NAME, given, &["opponent"], "`enemies` = 0")?;
        }
        if options.hill != Hill::None && options.fires > 0 {
            let wanted = format!("\"none\" with `fires` = {}", options.fires);
            return Err(refused(NAME, "hill", options.hill, &wanted));
        }
        let sides = [&mut options.size, &mut options.width, &mut options.height];
        settle_sides(NAME, given, sides)?;
        let (width, height) = options.sides();
        // Every snake and every food needs a cell of its own at the start.
        let cells = width * height;
        let mut free = cells;
        for (name, count) in [
            ("agents", options.agents),
            ("enemies", options.enemies),
            ("apples", options.apples),
            ("bananas", options.bananas),
            ("fires", options.fires),
        ] {
            if count > free {
                let wanted = format!("at most {free} (free cells of {cells})");
                return Err(refused(NAME, name, count, &wanted));
            }
            free -= count;
        }
        Ok(options)
    }

    /// Returns the number of snakes, agents and enemies.
    pub(crate) fn snakes(&self) -> usize {
        self.agents + self.enemies
    }

    pub(crate) fn sides(&self) -> (usize, usize) {
        let side = |side: Option<usize>| side.or(self.size).expect("checked options have a size");
        (side(self.width), side(self.height))
    }

    pub(crate) fn count(&self, food: Food) -> usize {
        [self.apples, self.bananas, self.fires][food as usize]
    }

    pub(crate) fn worth(&self, food: Food) -> f64 {
        [self.apple_reward, self.banana_reward, self.fire_reward][food as usize]
    }

    /// Returns the kinds of food in the game.
    pub(crate) fn kinds(&self) -> Vec<Food> {
        let in_game = |&food: &Food| self.count(food) > 0;
        Food::ALL.into_iter().filter(in_game).collect()
    }

    /// Whether the meaning of the instructions differs from the usual one, in which apples give a point and there is no
    /// other food.
    pub(crate) fn changed(&self) -> bool {
        let is_changed = |&food: &Food| self.worth(food) != usual_worth(food);
        self.swapped || self.kinds().iter().any(is_changed)
    }

    /// Returns the agent's reward of a round without apples that rolled onto its head.
    pub(crate) fn reward(&self, event: SnakeEvent) -> f64 {
        self.step_reward
            + match event {
                SnakeEvent::Nothing => 0.0,
                SnakeEvent::Died(_) => self.death_reward,
                SnakeEvent::Ate(food) => self.worth(food),
            }
    }
}

pub(super) fn usual_worth(food: Food) -> f64 {
    if food == Food::Apple { 1.0 } else { 0.0 }
}
