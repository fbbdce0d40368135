//! The options of 2048.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use crate::DeclaredOptions;
use crate::OptionRange::{Real, Whole};
use crate::options::{LONGEST_EPISODE, OptionsError, Phrasing, View, refused};

crate::options! {
    pub(super) struct TilesOptions;
    /// the tile that ends the game, a power of two
    target: usize = 64, in Whole(32, 16384);
    /// whether to make high tiles, or to keep them low: then each higher tile costs its share
    goal: TilesGoal = TilesGoal::High, if changed;
    /// cost of each `up`
    up_cost: f64 = 0.0, in Real(0.0, 1000.0), if changed;
    /// the words left and right swap their meanings
    swapped: bool = false, if changed;
    /// the words of the rules
    wording: Phrasing = Phrasing::Usual, if changed;
    /// tiles as numbers, or as letters: `A` for 2, `B` for 4, and so on
    symbols: Phrasing = Phrasing::Usual, if changed;
    /// moves of an episode
    step_limit: usize = 50, in Whole(1, LONGEST_EPISODE);
    /// the picture alone, or a description above it
    view: View = View::Board;
}

/// Whether to make high tiles: option `goal`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TilesGoal {
    High,
    Low,
}

impl TilesOptions {
    pub(crate) fn checked(given: &Value) -> Result<TilesOptions, OptionsError> {
        let options = TilesOptions::read(NAME, given)?;
        if !options.target.is_power_of_two() {
            let wanted = "a power of two from 32 to 16384";
            return Err(refused(NAME, "target", options.target, wanted));
        }
        Ok(options)
    }

    pub(crate) fn level(&self) -> u8 {
        self.target.ilog2() as u8
    }

    /// Returns the reward of each new highest tile. From 2 to the target they add up to 1.
    pub(crate) fn share(&self) -> f64 {
        let share = 1.0 / f64::from(self.level() - 1);
        match self.goal {
            TilesGoal::High => share,
            TilesGoal::Low => -share,
        }
    }

    /// Whether the meaning of the instructions differs from the usual one.
    pub(crate) fn changed(&self) -> bool {
        self.goal != TilesGoal::High || self.up_cost != 0.0 || self.swapped
    }

    pub(crate) fn tile(&self, level: u8) -> String {
        match self.symbols {
            Phrasing::Usual => (1u32 << level).to_string(),
            Phrasing::Other => char::from(b'A' + level - 1).to_string(),
        }
    }
}
