//! The options of Snake. Their defaults are those of the paper where it can be told, and otherwise the likeliest ones.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use super::board::{Event, Thing};
use crate::options::{
    GameOption, OptionsError, Put, View, left_out, option, read, refused, settle_sides,
    unless_null, unless_usual, within,
};

/// A head is shown as one digit.
const MOST_SNAKES: usize = 9;

pub(super) const OPTIONS: &[GameOption] = &[
    option("size", "cells a side of a square board", "2 to 64"),
    option(
        "width",
        "cells from left to right, instead of size",
        "2 to 64",
    ),
    option(
        "height",
        "cells from top to bottom, instead of size",
        "2 to 64",
    ),
    option("agents", "snakes that are played", "1 to 9, with enemies 9"),
    option("enemies", "snakes that the game moves", "0 to 8"),
    option("apples", "apples on the board", "0 and more, if they fit"),
    option("bananas", "bananas on the board", "0 and more, if they fit"),
    option("fires", "fires on the board", "0 and more, if they fit"),
    option("apple_reward", "what an apple brings", "-1000 to 1000"),
    option("banana_reward", "what a banana brings", "-1000 to 1000"),
    option("fire_reward", "what a fire brings", "-1000 to 1000"),
    option("death_reward", "what dying brings", "-1000 to 1000"),
    option("step_reward", "what each round brings", "-1000 to 1000"),
    option("step_limit", "rounds of an episode", "1 to 100000"),
    option("view", "a picture, or coordinates too", "board or full"),
    option(
        "opponent",
        "how enemies move: by chance, or to what is worth points",
        "random or greedy",
    ),
    option(
        "hill",
        "where apples roll, a cell a round",
        "none, down, up, left or right; with fires none",
    ),
    option(
        "swapped",
        "left means right, and right means left",
        "true or false",
    ),
    option("symbols", "the signs on the board", "usual or other"),
    option("wording", "the words of the rules", "usual or other"),
];

/// How the enemies move: option `opponent`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Opponent {
    #[default]
    Random,
    Greedy,
}

/// Where apples roll: option `hill`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Hill {
    #[default]
    None,
    Down,
    Up,
    Left,
    Right,
}

impl Hill {
    /// The way downhill, as moves are numbered, and the edge that it ends at.
    pub fn way(self) -> Option<(usize, &'static str)> {
        match self {
            Hill::None => None,
            Hill::Up => Some((0, "top")),
            Hill::Down => Some((1, "bottom")),
            Hill::Left => Some((2, "left")),
            Hill::Right => Some((3, "right")),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Options {
    #[serde(deserialize_with = "unless_null")]
    pub size: Option<usize>,
    #[serde(deserialize_with = "unless_null")]
    pub width: Option<usize>,
    #[serde(deserialize_with = "unless_null")]
    pub height: Option<usize>,
    pub agents: usize,
    pub enemies: usize,
    pub apples: usize,
    pub bananas: usize,
    pub fires: usize,
    pub apple_reward: f64,
    pub banana_reward: f64,
    pub fire_reward: f64,
    pub death_reward: f64,
    pub step_reward: f64,
    pub step_limit: usize,
    pub view: View,
    #[serde(serialize_with = "unless_usual")]
    pub opponent: Opponent,
    #[serde(serialize_with = "unless_usual")]
    pub hill: Hill,
    #[serde(serialize_with = "unless_usual")]
    pub swapped: bool,
    #[serde(serialize_with = "unless_usual")]
    pub symbols: Put,
    #[serde(serialize_with = "unless_usual")]
    pub wording: Put,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            size: None,
            width: None,
            height: None,
            agents: 1,
            enemies: 1,
            apples: 5,
            bananas: 0,
            fires: 0,
            apple_reward: 1.0,
            banana_reward: 1.0,
            fire_reward: -1.0,
            death_reward: -2.0,
            step_reward: -0.01,
            step_limit: 20,
            view: View::Board,
            opponent: Opponent::Random,
            hill: Hill::None,
            swapped: false,
            symbols: Put::Usual,
            wording: Put::Usual,
        }
    }
}

impl Options {
    /// Reads the options and settles the size.
    pub fn checked(given: &Value) -> Result<Options, OptionsError> {
        let mut options: Options = read(NAME, given)?;
        within(NAME, "agents", options.agents, 1..=MOST_SNAKES)?;
        within(NAME, "enemies", options.enemies, 0..=MOST_SNAKES - 1)?;
        if options.snakes() > MOST_SNAKES {
            let most = MOST_SNAKES - options.enemies;
            let wanted = format!(
                "at most {most} with `enemies` = {}, {MOST_SNAKES} snakes in all",
                options.enemies
            );
            return Err(refused(NAME, "agents", options.agents, &wanted));
        }
        within(NAME, "step_limit", options.step_limit, 1..=100_000)?;
        let rewards = [
            ("apple_reward", options.apple_reward),
            ("banana_reward", options.banana_reward),
            ("fire_reward", options.fire_reward),
            ("death_reward", options.death_reward),
            ("step_reward", options.step_reward),
        ];
        for (name, reward) in rewards {
            if reward.abs() > 1000.0 {
                return Err(refused(NAME, name, reward, "from -1000 to 1000"));
            }
        }
        if options.enemies == 0 {
            left_out(NAME, given, &["opponent"], "`enemies` = 0")?;
        }
        if options.hill != Hill::None && options.fires > 0 {
            let wanted = format!("\"none\" with `fires` = {}", options.fires);
            return Err(refused(NAME, "hill", options.hill, &wanted));
        }
        let sides = [&mut options.size, &mut options.width, &mut options.height];
        settle_sides(NAME, sides, 10)?;
        let (width, height) = options.sides();
        options.fit(width * height)?;
        Ok(options)
    }

    /// Checks that all there is has a cell of its own.
    fn fit(&self, cells: usize) -> Result<(), OptionsError> {
        let mut room = cells;
        for (name, count) in [("agents", self.agents), ("enemies", self.enemies)] {
            if count > room {
                let wanted = format!("at most {room} on {cells} cells");
                return Err(refused(NAME, name, count, &wanted));
            }
            room -= count;
        }
        for (name, count) in [
            ("apples", self.apples),
            ("bananas", self.bananas),
            ("fires", self.fires),
        ] {
            if count > room {
                let wanted =
                    format!("at most {room}, as many as there is room for on {cells} cells");
                return Err(refused(NAME, name, count, &wanted));
            }
            room -= count;
        }
        Ok(())
    }

    /// How many snakes there are, agents and enemies.
    pub fn snakes(&self) -> usize {
        self.agents + self.enemies
    }

    pub fn sides(&self) -> (usize, usize) {
        let side = |side: Option<usize>| side.or(self.size).expect("checked options have a size");
        (side(self.width), side(self.height))
    }

    pub fn count(&self, thing: Thing) -> usize {
        match thing {
            Thing::Apple => self.apples,
            Thing::Banana => self.bananas,
            Thing::Fire => self.fires,
        }
    }

    pub fn worth(&self, thing: Thing) -> f64 {
        match thing {
            Thing::Apple => self.apple_reward,
            Thing::Banana => self.banana_reward,
            Thing::Fire => self.fire_reward,
        }
    }

    /// The kinds of things there are.
    pub fn kinds(&self) -> Vec<Thing> {
        Thing::ALL
            .into_iter()
            .filter(|&thing| self.count(thing) > 0)
            .collect()
    }

    /// Whether an agent is told to do something else than the usual instructions say: that apples give a point each, and
    /// of nothing else.
    pub fn changed(&self) -> bool {
        self.swapped
            || self
                .kinds()
                .into_iter()
                .any(|thing| self.worth(thing) != usual_worth(thing))
    }

    /// What a word of the actions moves an agent by, and the other way round.
    pub fn meant(&self, action: usize) -> usize {
        match action {
            2 | 3 if self.swapped => 5 - action,
            _ => action,
        }
    }

    /// The lowest and the highest reward of a round.
    pub fn bounds(&self) -> (f64, f64) {
        // Beside what a snake moves onto, an apple can roll onto its head.
        let rolled = match self.hill {
            Hill::None => 0.0,
            _ if self.apples == 0 => 0.0,
            _ => self.apple_reward,
        };
        let eaten = self.kinds().into_iter().map(Event::Ate);
        let alive = eaten
            .chain([Event::Nothing])
            .map(|event| self.reward(event))
            .flat_map(|reward| [reward, reward + rolled]);
        let rewards = alive.chain([self.reward(Event::Died)]);
        rewards.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), reward| {
            (low.min(reward), high.max(reward))
        })
    }

    /// The agent's reward for a round, but for what rolled onto its head.
    pub fn reward(&self, event: Event) -> f64 {
        self.step_reward
            + match event {
                Event::Nothing => 0.0,
                Event::Died => self.death_reward,
                Event::Ate(thing) => self.worth(thing),
            }
    }
}

/// What a thing is worth by the usual instructions.
pub(super) fn usual_worth(thing: Thing) -> f64 {
    match thing {
        Thing::Apple => 1.0,
        Thing::Banana | Thing::Fire => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_option() {
        let listed: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
        assert_eq!(listed, crate::options::names::<Options>());
    }
}
