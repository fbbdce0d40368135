//! The variants and probes of Frozen Lake.

use super::options::{LakeOptions, LakeTarget};
use crate::options::{Phrasing, probes, variants};
use crate::{GameVariant, SemanticProbe};

pub(super) const VARIANTS: &[GameVariant] = variants! {
    LakeOptions;
    /// 4x4 and firm, 20 steps: the defaults.
    "frozen-lake-firm": size = Some(4), frozen = 0.8, step_limit = 20;
    /// 4x4 and slippery, 40 steps: the game of the preset of this name.
    "frozen-lake-slippery": slippery = true, step_limit = 40;
    /// Sides of 6 to 8, firm, 40 steps: the game of the preset of this name.
    "frozen-lake-large": size = Some(6), largest = Some(8), step_limit = 40;
    /// 8x8 with few holes, slippery, 100 steps.
    "frozen-lake-big-slippery": size = Some(8), frozen = 0.9, slippery = true, step_limit = 100;
    /// Gymnasium's standard map, slippery, 100 steps.
    "frozen-lake-fixed": map = Some(["SFFF", "FHFH", "FFFH", "HFFG"].map(str::to_owned).into()), slippery = true, step_limit = 100;
    /// 4x4 and firm, 8 steps: what the first author of MS-GRPO trains on.
    "frozen-lake-author-firm": size = Some(4), frozen = 0.8, step_limit = 8;
    /// 4x4 with few holes, slippery, 15 steps: the author's slippery evaluation.
    "frozen-lake-author-slippery": size = Some(4), frozen = 0.9, slippery = true, step_limit = 15;
};

pub(super) const PROBES: &[SemanticProbe] = probes! {
    LakeOptions;
    /// The holes are the way to win, and the goal gives nothing.
    "holes", Blatant: target = LakeTarget::Holes;
    /// The words left and right swap their meanings.
    "swapped", Plain: swapped = true;
    /// Some ice is red, and each step that ends on it costs a point.
    "red", Plain: red = 4;
    /// The goal counts at step 8 only, neither sooner nor later.
    "exact", Subtle: exact = Some(8);
    /// Other signs stand for the player, ice, holes and the goal.
    "symbols", Subtle: symbols = Phrasing::Other;
    /// The same rules in other words.
    "wording", Subtle: wording = Phrasing::Other;
};
