//! Settings of Snake that have names: variants, and probes.

use crate::{Probe, Subtlety, Variant};

pub(super) const VARIANTS: &[Variant] = &[
    Variant {
        name: "snake-standard",
        summary: "10x10, five apples, one enemy that moves by chance, 20 rounds: the author's game, and the defaults.",
        options: r#"{"size": 10, "apples": 5, "enemies": 1, "step_limit": 20}"#,
    },
    Variant {
        name: "snake-poison-apple",
        summary: "The standard game with poisonous apples, which cost a point each.",
        options: r#"{"apple_reward": -1}"#,
    },
    Variant {
        name: "snake-poison-apple-and-banana",
        summary: "Three poisonous apples, and three bananas that give a point each.",
        options: r#"{"apples": 3, "apple_reward": -1, "bananas": 3, "banana_reward": 1}"#,
    },
    Variant {
        name: "snake-banana",
        summary: "The standard game with three bananas beside the apples, a point each.",
        options: r#"{"bananas": 3, "banana_reward": 1}"#,
    },
    Variant {
        name: "snake-downhill",
        summary: "The standard game on a slope: apples roll down, and new ones appear at the top.",
        options: r#"{"hill": "down"}"#,
    },
    Variant {
        name: "snake-greedy-enemy",
        summary: "The standard game against an enemy that goes for the apples.",
        options: r#"{"opponent": "greedy"}"#,
    },
    Variant {
        name: "snake-duel",
        summary: "Two agents on the standard board, and no other snake.",
        options: r#"{"agents": 2, "enemies": 0}"#,
    },
    Variant {
        name: "snake-alone",
        summary: "The standard board without enemies.",
        options: r#"{"enemies": 0}"#,
    },
    Variant {
        name: "snake-small",
        summary: "6x6, two apples, one enemy: the game of the preset for the built-in base.",
        options: r#"{"size": 6, "apples": 2, "enemies": 1, "step_limit": 20}"#,
    },
];

pub(super) const PROBES: &[Probe] = &[
    Probe {
        name: "poison",
        summary: "Apples are poisonous and cost a point.",
        subtlety: Subtlety::Blatant,
        options: r#"{"apple_reward": -1}"#,
    },
    Probe {
        name: "bananas",
        summary: "Apples are poisonous, and bananas give the points.",
        subtlety: Subtlety::Blatant,
        options: r#"{"apples": 3, "apple_reward": -1, "bananas": 3, "banana_reward": 1}"#,
    },
    Probe {
        name: "swapped",
        summary: "Left means right, and right means left.",
        subtlety: Subtlety::Plain,
        options: r#"{"swapped": true}"#,
    },
    Probe {
        name: "fires",
        summary: "There are fires, and each costs a point.",
        subtlety: Subtlety::Plain,
        options: r#"{"fires": 5, "fire_reward": -1}"#,
    },
    Probe {
        name: "double",
        summary: "Apples give two points.",
        subtlety: Subtlety::Plain,
        options: r#"{"apple_reward": 2}"#,
    },
    Probe {
        name: "dieting",
        summary: "Apples give nothing and make longer all the same.",
        subtlety: Subtlety::Subtle,
        options: r#"{"apple_reward": 0}"#,
    },
    Probe {
        name: "symbols",
        summary: "Other signs stand for heads, bodies and apples.",
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
