//! The options of Frozen Lake. Their defaults are those of the paper.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use super::map::{Cell, Map};
use crate::options::{
    GameOption, LONGEST_SIDE, OptionsError, Put, View, left_out, option, read, refused,
    settle_sides, unless_null, unless_usual, within,
};

/// The highest step limit, so that planning every step of it on the largest map still fits in memory.
const LONGEST_EPISODE: usize = 1000;

const SIZE: usize = 4;
const FROZEN: f64 = 0.8;

pub(super) const OPTIONS: &[GameOption] = &[
    option("size", "cells a side of a square lake", "2 to 64"),
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
    option(
        "largest",
        "each scene draws its sides from size to this",
        "size to 64",
    ),
    option(
        "frozen",
        "chance that a cell is ice and no hole",
        "above 0 to 1",
    ),
    option(
        "slippery",
        "two moves in three go to a side",
        "true or false",
    ),
    option(
        "map",
        "the lake itself, instead of all of these",
        "rows of S, F, H, G, such as [\"SF\", \"HG\"]",
    ),
    option("step_limit", "turns of an episode", "1 to 1000"),
    option("view", "a picture, or coordinates too", "board or full"),
    option("target", "where to go", "goal or holes"),
    option(
        "exact",
        "the one step at which arriving counts",
        "1 to step_limit",
    ),
    option(
        "red",
        "cells of red ice, which cost a point",
        "0 and more, as many as leave a way",
    ),
    option(
        "swapped",
        "left means right, and right means left",
        "true or false",
    ),
    option("symbols", "the signs on the board", "usual or other"),
    option("wording", "the words of the rules", "usual or other"),
];

/// Where to go: option `target`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Target {
    #[default]
    Goal,
    Holes,
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
    largest: Option<usize>,
    #[serde(deserialize_with = "unless_null")]
    frozen: Option<f64>,
    pub slippery: bool,
    #[serde(deserialize_with = "unless_null")]
    map: Option<Vec<String>>,
    pub step_limit: usize,
    pub view: View,
    #[serde(serialize_with = "unless_usual")]
    pub target: Target,
    #[serde(deserialize_with = "unless_null")]
    pub exact: Option<usize>,
    #[serde(serialize_with = "unless_usual")]
    pub red: usize,
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
            largest: None,
            frozen: None,
            slippery: false,
            map: None,
            step_limit: 20,
            view: View::Board,
            target: Target::Goal,
            exact: None,
            red: 0,
            swapped: false,
            symbols: Put::Usual,
            wording: Put::Usual,
        }
    }
}

impl Options {
    /// Reads the options, and settles either the map, which is then there too, or what maps are drawn from.
    pub fn checked(given: &Value) -> Result<(Options, Option<Map>), OptionsError> {
        let mut options: Options = read(NAME, given)?;
        within(NAME, "step_limit", options.step_limit, 1..=LONGEST_EPISODE)?;
        if let Some(step) = options.exact {
            within(NAME, "exact", step, 1..=options.step_limit)?;
        }
        within(NAME, "red", options.red, 0..=LONGEST_SIDE * LONGEST_SIDE)?;
        if let Some(rows) = &options.map {
            let drawn = ["size", "width", "height", "largest", "frozen"];
            left_out(NAME, given, &drawn, "`map`, which stands for it")?;
            let map = Map::parse(rows, LONGEST_SIDE).map_err(|problem| OptionsError::Value {
                game: NAME.to_owned(),
                option: "map".to_owned(),
                problem,
            })?;
            return Ok((options, Some(map)));
        }
        if options.largest.is_some() {
            left_out(
                NAME,
                given,
                &["width", "height"],
                "`largest`, which draws it",
            )?;
        }
        let sides = [&mut options.size, &mut options.width, &mut options.height];
        settle_sides(NAME, sides, SIZE)?;
        if let (Some(largest), Some(size)) = (options.largest, options.size) {
            within(NAME, "largest", largest, size..=LONGEST_SIDE)?;
        }
        let frozen = options.frozen();
        if !(frozen > 0.0 && frozen <= 1.0) {
            return Err(refused(NAME, "frozen", frozen, "more than 0 and at most 1"));
        }
        options.frozen = Some(frozen);
        Ok((options, None))
    }

    /// What the width and the height are drawn from.
    pub fn sides(&self) -> [RangeInclusive<usize>; 2] {
        let size = self.size.unwrap_or(SIZE);
        [self.width, self.height].map(|side| {
            let shortest = side.unwrap_or(size);
            shortest..=self.largest.unwrap_or(shortest)
        })
    }

    /// Rows and columns of the largest lake there can be; `map` is one of them.
    pub fn largest_sides(&self, map: &Map) -> (usize, usize) {
        if self.map.is_some() {
            return (map.height(), map.width());
        }
        let [width, height] = self.sides();
        (*height.end(), *width.end())
    }

    /// What a word of the actions moves the player by, and the other way round.
    pub fn meant(&self, action: usize) -> usize {
        match action {
            0 | 2 if self.swapped => 2 - action,
            _ => action,
        }
    }

    /// What there is to do.
    pub fn task(&self) -> Task {
        Task {
            target: self.target,
            exact: self.exact,
            red: self.red > 0,
            ..self.usual_task()
        }
    }

    /// What there would be to do by the usual instructions.
    pub fn usual_task(&self) -> Task {
        Task {
            slippery: self.slippery,
            step_limit: self.step_limit,
            target: Target::Goal,
            exact: None,
            red: false,
        }
    }

    /// Whether the agent is told to do something else than the usual instructions say.
    pub fn changed(&self) -> bool {
        self.swapped || self.task() != self.usual_task()
    }

    /// The chance that a drawn cell is frozen.
    pub fn frozen(&self) -> f64 {
        self.frozen.unwrap_or(FROZEN)
    }
}

/// What there is to do on a lake, and how its ice is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Task {
    pub slippery: bool,
    pub step_limit: usize,
    pub target: Target,
    /// The one step at which arriving counts.
    pub exact: Option<usize>,
    /// Whether red ice costs a point.
    pub red: bool,
}

impl Task {
    /// The kind of cell that is to be reached.
    pub fn wanted(&self) -> Cell {
        match self.target {
            Target::Goal => Cell::Goal,
            Target::Holes => Cell::Hole,
        }
    }

    /// What it brings to be on a cell at the end of a step; steps are counted from 1.
    pub fn reward(&self, cell: Cell, step: usize) -> f64 {
        if cell == self.wanted() && self.exact.is_none_or(|exact| exact == step) {
            1.0
        } else if cell == Cell::Red && self.red {
            -1.0
        } else {
            0.0
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
