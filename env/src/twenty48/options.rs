//! The options of 2048.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use super::board::{LEFT, RIGHT};
use crate::options::{
    GameOption, OptionsError, Put, View, option, read, refused, unless_usual, within,
};

pub(super) const OPTIONS: &[GameOption] = &[
    option(
        "target",
        "the tile that ends the game",
        "a power of two from 32 to 16384",
    ),
    option(
        "goal",
        "whether tiles are to become high or stay low",
        "high or low",
    ),
    option("up_cost", "what each up costs", "0 to 1000"),
    option(
        "swapped",
        "the words left and right have changed their meaning",
        "true or false",
    ),
    option("wording", "how the rules are put", "usual or other"),
    option(
        "symbols",
        "tiles as numbers, or as letters",
        "usual or other",
    ),
    option("step_limit", "moves of an episode", "1 to 100000"),
    option("view", "a picture, or words about it too", "board or full"),
];

/// What tiles are to become.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Goal {
    #[default]
    High,
    Low,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Options {
    target: usize,
    #[serde(serialize_with = "unless_usual")]
    pub goal: Goal,
    #[serde(serialize_with = "unless_usual")]
    pub up_cost: f64,
    #[serde(serialize_with = "unless_usual")]
    pub swapped: bool,
    #[serde(serialize_with = "unless_usual")]
    pub wording: Put,
    #[serde(serialize_with = "unless_usual")]
    symbols: Put,
    pub step_limit: usize,
    pub view: View,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            target: 64,
            goal: Goal::High,
            up_cost: 0.0,
            swapped: false,
            wording: Put::Usual,
            symbols: Put::Usual,
            step_limit: 50,
            view: View::Board,
        }
    }
}

impl Options {
    pub fn checked(given: &Value) -> Result<Options, OptionsError> {
        let options: Options = read(NAME, given)?;
        if !options.target.is_power_of_two() || !(32..=16384).contains(&options.target) {
            let wanted = "a power of two from 32 to 16384";
            return Err(refused(NAME, "target", options.target, wanted));
        }
        if !(0.0..=1000.0).contains(&options.up_cost) {
            return Err(refused(NAME, "up_cost", options.up_cost, "from 0 to 1000"));
        }
        within(NAME, "step_limit", options.step_limit, 1..=100_000)?;
        Ok(options)
    }

    /// The level of the target.
    pub fn level(&self) -> u8 {
        self.target.ilog2() as u8
    }

    /// What each new highest tile brings: from 2 to the target they are 1 together.
    pub fn share(&self) -> f64 {
        let share = 1.0 / f64::from(self.level() - 1);
        match self.goal {
            Goal::High => share,
            Goal::Low => -share,
        }
    }

    /// Whether the agent is told to do something else than the usual instructions say.
    pub fn changed(&self) -> bool {
        self.goal != Goal::High || self.up_cost != 0.0 || self.swapped
    }

    pub fn letters(&self) -> bool {
        self.symbols == Put::Other
    }

    /// A tile as it is told.
    pub fn tile(&self, level: u8) -> String {
        match self.symbols {
            Put::Usual => (1u32 << level).to_string(),
            Put::Other => char::from(b'A' + level - 1).to_string(),
        }
    }

    /// The way that an action goes, and the action that goes a way: swapping is its own inverse.
    pub fn way(&self, action: usize) -> usize {
        match action {
            LEFT if self.swapped => RIGHT,
            RIGHT if self.swapped => LEFT,
            other => other,
        }
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
