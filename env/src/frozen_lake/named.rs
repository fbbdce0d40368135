//! The variants and probes of Frozen Lake.

use super::options::{LakeOptions, LakeTarget};
use crate::options::{Phrasing, set};
use crate::{GameVariant, SemanticProbe, Subtlety};

pub(super) const VARIANTS: &[GameVariant] = &[
    GameVariant {
        name: "frozen-lake-firm",
        summary: "4x4 and firm, 20 steps: the defaults.",
        set: set!(LakeOptions, size = Some(4), frozen = 0.8, step_limit = 20),
    },
    GameVariant {
        name: "frozen-lake-slippery",
        summary: "4x4 and slippery, 40 steps: the game of the preset of this name.",
        set: set!(LakeOptions, slippery = true, step_limit = 40),
    },
    GameVariant {
        name: "frozen-lake-large",
        summary: "Sides of 6 to 8, firm, 40 steps: the game of the preset of this name.",
        set: set!(
            LakeOptions,
            size = Some(6),
            largest = Some(8),
            step_limit = 40
        ),
    },
    GameVariant {
        name: "frozen-lake-big-slippery",
        summary: "8x8 with few holes, slippery, 100 steps.",
        set: set!(
            LakeOptions,
            size = Some(8),
            frozen = 0.9,
            slippery = true,
            step_limit = 100
        ),
    },
    GameVariant {
        name: "frozen-lake-fixed",
        summary: "Gymnasium's standard map, slippery, 100 steps.",
        set: set!(
            LakeOptions,
            map = Some(["SFFF", "FHFH", "FFFH", "HFFG"].map(str::to_owned).into()),
            slippery = true,
            step_limit = 100
        ),
    },
    GameVariant {
        name: "frozen-lake-author-firm",
        summary: "4x4 and firm, 8 steps: what the first author of MS-GRPO trains on.",
        set: set!(LakeOptions, size = Some(4), frozen = 0.8, step_limit = 8),
    },
    GameVariant {
        name: "frozen-lake-author-slippery",
        summary: "4x4 with few holes, slippery, 15 steps: the author's slippery evaluation.",
        set: set!(
            LakeOptions,
            size = Some(4),
            frozen = 0.9,
            slippery = true,
            step_limit = 15
        ),
    },
];

pub(super) const PROBES: &[SemanticProbe] = &[
    SemanticProbe {
        name: "holes",
        summary: "The holes are the way to win, and the goal gives nothing.",
        subtlety: Subtlety::Blatant,
        set: set!(LakeOptions, target = LakeTarget::Holes),
    },
    SemanticProbe {
        name: "swapped",
        summary: "Left means right, and right means left.",
        subtlety: Subtlety::Plain,
        set: set!(LakeOptions, swapped = true),
    },
    SemanticProbe {
        name: "red",
        summary: "Some ice is red, and each step that ends on it costs a point.",
        subtlety: Subtlety::Plain,
        set: set!(LakeOptions, red = 4),
    },
    SemanticProbe {
        name: "exact",
        summary: "The goal counts at step 8 only, neither sooner nor later.",
        subtlety: Subtlety::Subtle,
        set: set!(LakeOptions, exact = Some(8)),
    },
    SemanticProbe {
        name: "symbols",
        summary: "Other signs stand for the player, ice, holes and the goal.",
        subtlety: Subtlety::Subtle,
        set: set!(LakeOptions, symbols = Phrasing::Other),
    },
    SemanticProbe {
        name: "wording",
        summary: "The same rules in other words.",
        subtlety: Subtlety::Subtle,
        set: set!(LakeOptions, wording = Phrasing::Other),
    },
];
