//! Settings of Frozen Lake that have names: variants, and probes.

use crate::{Probe, Subtlety, Variant};

pub(super) const VARIANTS: &[Variant] = &[
    Variant {
        name: "frozen-lake-firm",
        summary: "4x4 and firm, 20 steps: the defaults.",
        options: r#"{"size": 4, "frozen": 0.8, "step_limit": 20}"#,
    },
    Variant {
        name: "frozen-lake-slippery",
        summary: "4x4 and slippery, 40 steps: the game of the preset of this name.",
        options: r#"{"slippery": true, "step_limit": 40}"#,
    },
    Variant {
        name: "frozen-lake-large",
        summary: "Sides of 6 to 8, firm, 40 steps: the game of the preset of this name.",
        options: r#"{"size": 6, "largest": 8, "step_limit": 40}"#,
    },
    Variant {
        name: "frozen-lake-big-slippery",
        summary: "8x8 with few holes, slippery, 100 steps.",
        options: r#"{"size": 8, "frozen": 0.9, "slippery": true, "step_limit": 100}"#,
    },
    Variant {
        name: "frozen-lake-fixed",
        summary: "Gymnasium's standard map, slippery, 100 steps.",
        options: r#"{"map": ["SFFF", "FHFH", "FFFH", "HFFG"], "slippery": true, "step_limit": 100}"#,
    },
    Variant {
        name: "frozen-lake-author-firm",
        summary: "4x4 and firm, 8 steps: what the first author of MS-GRPO trains on.",
        options: r#"{"size": 4, "frozen": 0.8, "step_limit": 8}"#,
    },
    Variant {
        name: "frozen-lake-author-slippery",
        summary: "4x4 with few holes, slippery, 15 steps: the author's slippery evaluation.",
        options: r#"{"size": 4, "frozen": 0.9, "slippery": true, "step_limit": 15}"#,
    },
];

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "holes",
        summary: "The holes are the way to win, and the goal gives nothing.",
        subtlety: Subtlety::Blatant,
        options: r#"{"target": "holes"}"#,
    },
    Probe {
        name: "swapped",
        summary: "Left means right, and right means left.",
        subtlety: Subtlety::Plain,
        options: r#"{"swapped": true}"#,
    },
    Probe {
        name: "red",
        summary: "Some ice is red, and each step that ends on it costs a point.",
        subtlety: Subtlety::Plain,
        options: r#"{"red": 4}"#,
    },
    Probe {
        name: "exact",
        summary: "The goal counts at step 8 only, neither sooner nor later.",
        subtlety: Subtlety::Subtle,
        options: r#"{"exact": 8}"#,
    },
    Probe {
        name: "symbols",
        summary: "Other signs stand for the player, ice, holes and the goal.",
        subtlety: Subtlety::Subtle,
        options: r#"{"symbols": "other"}"#,
    },
    Probe {
        name: "wording",
        summary: "The same rules in other words.",
        subtlety: Subtlety::Subtle,
        options: r#"{"wording": "other"}"#,
    },
];
