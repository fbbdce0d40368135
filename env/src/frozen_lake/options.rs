//! The options of Frozen Lake. The defaults are those of the paper.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use super::map::{LakeCell, LakeMap};
use crate::DeclaredOptions;
use crate::OptionRange::{Positive, Whole};
use crate::options::{
    LONGEST_SIDE, ListedView, OptionsError, Phrasing, left_out, refused, settle_sides, wrong,
};

/// The highest step limit. Planning every step of it on the largest map still fits in memory.
const LONGEST_LAKE_EPISODE: usize = 1000;

/// The options that maps are drawn from, which a given map replaces.
pub(super) const DRAWN: &[&str] = &["size", "width", "height", "largest", "frozen"];

crate::options! {
    pub(super) struct LakeOptions;
    /// cells per side of a square lake
    size: Option<usize> = Some(4), in Whole(2, LONGEST_SIDE);
    /// cells from left to right, instead of `size`
    width: Option<usize> = None, in Whole(2, LONGEST_SIDE);
    /// cells from top to bottom, instead of `size`
    height: Option<usize> = None, in Whole(2, LONGEST_SIDE);
    /// if given, each scene draws both sides from `size` to this
    largest: Option<usize> = None, in Whole(2, LONGEST_SIDE);
    /// probability that a cell is ice and not a hole
    frozen: f64 = 0.8, in Positive(1.0);
    /// the player slips to a side in two of three moves
    slippery: bool = false;
    /// the lake itself as rows of `S`, `F`, `H` and `G`, such as `["SF", "HG"]`, instead of all options above but
    /// `slippery`
    map: Option<Vec<String>> = None;
    /// steps of an episode
    step_limit: usize = 20, in Whole(1, LONGEST_LAKE_EPISODE);
    /// the picture alone, coordinates alone, the moves from the player to each thing, or coordinates and a key above the
    /// picture
    view: ListedView = ListedView::Board;
    /// the cells to reach
    target: LakeTarget = LakeTarget::Goal, if changed;
    /// the only step at which arriving counts, at most `step_limit`
    exact: Option<usize> = None, in Whole(1, LONGEST_LAKE_EPISODE);
    /// cells of red ice, or fewer if more would leave no path around them; each step that ends on one costs a point
    red: usize = 0, in Whole(0, LONGEST_SIDE * LONGEST_SIDE), if changed;
    /// the words left and right swap their meanings
    swapped: bool = false, if changed;
    /// the signs on the board
    symbols: Phrasing = Phrasing::Usual, if changed;
    /// the words of the rules
    wording: Phrasing = Phrasing::Usual, if changed;
}

/// The cells to reach: option `target`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LakeTarget {
    Goal,
    Holes,
}

impl LakeOptions {
    /// Reads the options. Returns the map too if they have one.
    pub(crate) fn checked(given: &Value) -> Result<(LakeOptions, Option<LakeMap>), OptionsError> {
        let mut options = LakeOptions::read(NAME, given)?;
        if let Some(step) = options.exact.filter(|step| *step > options.step_limit) {
            let wanted = format!("at most `step_limit` = {}", options.step_limit);
            return Err(refused(NAME, "exact", step, &wanted));
        }
        if let Some(rows) = &options.map {
            left_out(NAME, given, DRAWN, "`map`, which replaces it")?;
            let map = LakeMap::parse(rows, LONGEST_SIDE)
                .map_err(|problem| wrong(NAME, "map", problem))?;
            return Ok((options, Some(map)));
        }
        if let Some(largest) = options.largest {
            let sides = ["width", "height"];
            left_out(NAME, given, &sides, "`largest`, which draws it")?;
            if let Some(size) = options.size.filter(|size| *size > largest) {
                let wanted = format!("from `size` = {size} to {LONGEST_SIDE}");
                return Err(refused(NAME, "largest", largest, &wanted));
            }
        }
        let sides = [&mut options.size, &mut options.width, &mut options.height];
        settle_sides(NAME, given, sides)?;
        Ok((options, None))
    }

    /// Returns the ranges that the width and the height are drawn from.
    pub(crate) fn sides(&self) -> [RangeInclusive<usize>; 2] {
        [self.width, self.height].map(|side| {
            let side = side.or(self.size);
            let shortest = side.expect("checked options have a size or both sides");
            shortest..=self.largest.unwrap_or(shortest)
        })
    }

    /// Returns the rows and columns of the largest lake of these options; `map` is one of their lakes.
    pub(crate) fn largest_sides(&self, map: &LakeMap) -> (usize, usize) {
        if self.map.is_some() {
            return (map.height(), map.width);
        }
        let [width, height] = self.sides();
        (*height.end(), *width.end())
    }

    /// Returns the options of the usual instructions on the same lake.
    pub(crate) fn usual(&self) -> LakeOptions {
        LakeOptions {
            target: LakeTarget::Goal,
            exact: None,
            red: 0,
            swapped: false,
            ..self.clone()
        }
    }

    /// Whether the meaning of the instructions differs from the usual one.
    pub(crate) fn changed(&self) -> bool {
        *self != self.usual()
    }

    /// Returns the kind of cell to reach.
    pub(crate) fn wanted(&self) -> LakeCell {
        match self.target {
            LakeTarget::Goal => LakeCell::Goal,
            LakeTarget::Holes => LakeCell::Hole,
        }
    }

    /// Returns the reward of a step that ends on `cell`. Steps are counted from 1.
    pub(crate) fn reward(&self, cell: LakeCell, step: usize) -> f64 {
        if cell == self.wanted() && self.exact.is_none_or(|exact| exact == step) {
            1.0
        } else if cell == LakeCell::Red && self.red > 0 {
            -1.0
        } else {
            0.0
        }
    }
}
