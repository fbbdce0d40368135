//! The options of Sokoban.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::NAME;
use super::level::{LONGEST_LEVEL_SIDE, Levels, MOST_BOXES};
use crate::DeclaredOptions;
use crate::OptionRange::{Real, Whole};
use crate::options::{
    LONGEST_EPISODE, OptionsError, Phrasing, View, left_out, refused, settle_sides, wrong,
};

/// With more states starting an episode takes longer than some tens of milliseconds.
const MOST_EFFORT: usize = 10_000;

/// The options that levels are drawn from, which a file of levels replaces.
pub(super) const DRAWN: &[&str] = &["size", "width", "height", "boxes", "effort"];

crate::options! {
    pub(super) struct SokobanOptions;
    /// cells per side of a square level, with its walls
    size: Option<usize> = Some(6), in Whole(5, LONGEST_LEVEL_SIDE);
    /// cells from left to right, instead of `size`
    width: Option<usize> = None, in Whole(5, LONGEST_LEVEL_SIDE);
    /// cells from top to bottom, instead of `size`
    height: Option<usize> = None, in Whole(5, LONGEST_LEVEL_SIDE);
    /// boxes, and as many targets; at most the width - 2
    boxes: usize = 1, in Whole(1, MOST_BOXES);
    /// states that reverse play visits in each room: more make levels harder and starting slower
    effort: usize = 300, in Whole(50, MOST_EFFORT);
    /// a file of levels in Boxoban's format, instead of all options above
    levels: Option<PathBuf> = None;
    /// whether boxes must be on targets, or must not: then their rewards are costs
    goal: BoxGoal = BoxGoal::On, if changed;
    /// reward of each step
    step_reward: f64 = -0.1, in Real(-1000.0, 0.0);
    /// reward of a box that gets onto a target; leaving it costs as much
    box_reward: f64 = 1.0, in Real(0.0, 1000.0);
    /// reward of all boxes on targets
    done_reward: f64 = 10.0, in Real(0.0, 1000.0);
    /// the words left and right swap their meanings
    swapped: bool = false, if changed;
    /// the words of the rules
    wording: Phrasing = Phrasing::Usual, if changed;
    /// the signs of the picture
    symbols: Phrasing = Phrasing::Usual, if changed;
    /// steps of an episode
    step_limit: usize = 20, in Whole(1, LONGEST_EPISODE);
    /// the picture alone, or coordinates and a key above it
    view: View = View::Board;
}

/// Whether boxes must be on targets: option `goal`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BoxGoal {
    On,
    Off,
}

impl SokobanOptions {
    /// Reads the options. Returns the levels too if they name a file.
    pub(crate) fn checked(given: &Value) -> Result<(SokobanOptions, Option<Levels>), OptionsError> {
        let mut options = SokobanOptions::read(NAME, given)?;
        if let Some(path) = &options.levels {
            left_out(NAME, given, DRAWN, "`levels`, which replaces it")?;
            let levels =
                super::file::read(path).map_err(|problem| wrong(NAME, "levels", problem))?;
            return Ok((options, Some(levels)));
        }
        let sides = [&mut options.size, &mut options.width, &mut options.height];
        settle_sides(NAME, given, sides)?;
        let (width, _) = options.sides();
        if options.boxes > width - 2 {
            let wanted = format!("at most {}, the width - 2", width - 2);
            return Err(refused(NAME, "boxes", options.boxes, &wanted));
        }
        Ok((options, None))
    }

    pub(crate) fn sides(&self) -> (usize, usize) {
        let side = |side: Option<usize>| side.or(self.size).expect("checked options have a size");
        (side(self.width), side(self.height))
    }

    /// Returns the rewards of a box that gets onto a target, and of all boxes on targets.
    pub(crate) fn rewards(&self) -> (f64, f64) {
        match self.goal {
            BoxGoal::On => (self.box_reward, self.done_reward),
            BoxGoal::Off => (-self.box_reward, -self.done_reward),
        }
    }

    /// Whether the meaning of the instructions differs from the usual one.
    pub(crate) fn changed(&self) -> bool {
        let usual = SokobanOptions::default();
        let rewards = |it: &SokobanOptions| (it.step_reward, it.box_reward, it.done_reward);
        self.swapped || self.goal != usual.goal || rewards(self) != rewards(&usual)
    }
}
