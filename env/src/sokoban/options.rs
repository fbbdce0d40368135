//! The options of Sokoban.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use super::level::{LONGEST_SIDE, Levels, MOST_BOXES};
use crate::options::{
    GameOption, OptionsError, Put, View, left_out, option, read, refused, settle_sides,
    unless_null, unless_usual, within,
};

const SIZE: usize = 6;
const BOXES: usize = 1;
const EFFORT: usize = 300;

/// More and starting an episode takes longer than some tens of milliseconds.
const MOST_EFFORT: usize = 10_000;

pub(super) const OPTIONS: &[GameOption] = &[
    option(
        "size",
        "cells a side of a square level, walls too",
        "5 to 15",
    ),
    option(
        "width",
        "cells from left to right, instead of size",
        "5 to 15",
    ),
    option(
        "height",
        "cells from top to bottom, instead of size",
        "5 to 15",
    ),
    option(
        "boxes",
        "boxes, and as many targets",
        "1 to 8, at most width - 2",
    ),
    option(
        "effort",
        "states that making a level looks at: more, and it is harder",
        "50 to 10000",
    ),
    option(
        "levels",
        "a file of levels, instead of all of these",
        "a path",
    ),
    option(
        "goal",
        "whether boxes are to come to the targets or keep off",
        "on or off",
    ),
    option("step_reward", "what each step brings", "-1000 to 0"),
    option(
        "box_reward",
        "what a box on a target brings, and its leaving costs",
        "0 to 1000",
    ),
    option(
        "done_reward",
        "what having all boxes on targets brings",
        "0 to 1000",
    ),
    option(
        "swapped",
        "the words left and right have changed their meaning",
        "true or false",
    ),
    option("wording", "how the rules are put", "usual or other"),
    option("symbols", "the signs of the picture", "usual or other"),
    option("step_limit", "steps of an episode", "1 to 100000"),
    option("view", "a picture, or coordinates too", "board or full"),
];

/// What boxes are to do with targets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Goal {
    #[default]
    On,
    Off,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Options {
    #[serde(deserialize_with = "unless_null")]
    size: Option<usize>,
    #[serde(deserialize_with = "unless_null")]
    width: Option<usize>,
    #[serde(deserialize_with = "unless_null")]
    height: Option<usize>,
    #[serde(deserialize_with = "unless_null")]
    boxes: Option<usize>,
    #[serde(deserialize_with = "unless_null")]
    effort: Option<usize>,
    #[serde(deserialize_with = "unless_null")]
    levels: Option<PathBuf>,
    #[serde(serialize_with = "unless_usual")]
    pub goal: Goal,
    pub step_reward: f64,
    pub box_reward: f64,
    pub done_reward: f64,
    #[serde(serialize_with = "unless_usual")]
    pub swapped: bool,
    #[serde(serialize_with = "unless_usual")]
    pub wording: Put,
    #[serde(serialize_with = "unless_usual")]
    pub symbols: Put,
    pub step_limit: usize,
    pub view: View,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            size: None,
            width: None,
            height: None,
            boxes: None,
            effort: None,
            levels: None,
            goal: Goal::On,
            step_reward: -0.1,
            box_reward: 1.0,
            done_reward: 10.0,
            swapped: false,
            wording: Put::Usual,
            symbols: Put::Usual,
            step_limit: 20,
            view: View::Board,
        }
    }
}

impl Options {
    /// Reads the options, and settles what levels are drawn from; or reads the levels, which are then there too.
    pub fn checked(given: &Value) -> Result<(Options, Option<Levels>), OptionsError> {
        let mut options: Options = read(NAME, given)?;
        within(NAME, "step_limit", options.step_limit, 1..=100_000)?;
        for (name, reward, range) in [
            ("step_reward", options.step_reward, -1000.0..=0.0),
            ("box_reward", options.box_reward, 0.0..=1000.0),
            ("done_reward", options.done_reward, 0.0..=1000.0),
        ] {
            if !range.contains(&reward) {
                let wanted = format!("from {} to {}", range.start(), range.end());
                return Err(refused(NAME, name, reward, &wanted));
            }
        }
        if let Some(path) = &options.levels {
            let drawn = ["size", "width", "height", "boxes", "effort"];
            left_out(NAME, given, &drawn, "`levels`, which stands for it")?;
            let levels = super::file::read(path).map_err(|problem| OptionsError::Value {
                game: NAME.to_owned(),
                option: "levels".to_owned(),
                problem,
            })?;
            return Ok((options, Some(levels)));
        }
        for (name, side) in [
            ("size", options.size),
            ("width", options.width),
            ("height", options.height),
        ] {
            within(NAME, name, side.unwrap_or(SIZE), 5..=LONGEST_SIDE)?;
        }
        let sides = [&mut options.size, &mut options.width, &mut options.height];
        settle_sides(NAME, sides, SIZE)?;
        within(NAME, "boxes", options.boxes(), 1..=MOST_BOXES)?;
        let (width, _) = options.sides();
        if options.boxes() > width - 2 {
            let wanted = format!("at most {}, 2 less than the level is wide", width - 2);
            return Err(refused(NAME, "boxes", options.boxes(), &wanted));
        }
        within(NAME, "effort", options.effort(), 50..=MOST_EFFORT)?;
        (options.boxes, options.effort) = (Some(options.boxes()), Some(options.effort()));
        Ok((options, None))
    }

    pub fn sides(&self) -> (usize, usize) {
        let side = |side: Option<usize>| side.or(self.size).unwrap_or(SIZE);
        (side(self.width), side(self.height))
    }

    pub fn boxes(&self) -> usize {
        self.boxes.unwrap_or(BOXES)
    }

    pub fn effort(&self) -> usize {
        self.effort.unwrap_or(EFFORT)
    }

    /// What comes with each box that gets onto a target, and with all of them being there.
    pub fn rewards(&self) -> (f64, f64) {
        match self.goal {
            Goal::On => (self.box_reward, self.done_reward),
            Goal::Off => (-self.box_reward, -self.done_reward),
        }
    }

    /// Whether the agent is told to do something else than the usual instructions say.
    pub fn changed(&self) -> bool {
        self.goal != Goal::On
            || (self.step_reward, self.box_reward, self.done_reward) != (-0.1, 1.0, 10.0)
            || self.swapped
    }

    /// The way that an action goes, and the action that goes a way: swapping is its own inverse.
    pub fn way(&self, action: usize) -> usize {
        match action {
            2 | 3 if self.swapped => 5 - action,
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
