//! The variants and probes of Snake.

use super::options::{Hill, Opponent, SnakeOptions};
use crate::options::{Phrasing, set};
use crate::{GameVariant, SemanticProbe, Subtlety};

pub(super) const VARIANTS: &[GameVariant] = &[
    GameVariant {
        name: "snake-standard",
        summary: "10x10, five apples, one enemy that moves by chance, 20 rounds: the author's game, and the defaults.",
        set: set!(
            SnakeOptions,
            size = Some(10),
            apples = 5,
            enemies = 1,
            step_limit = 20
        ),
    },
    GameVariant {
        name: "snake-poison-apple",
        summary: "The standard game with poisonous apples, which cost a point each.",
        set: set!(SnakeOptions, apple_reward = -1.0),
    },
    GameVariant {
        name: "snake-poison-apple-and-banana",
        summary: "Three poisonous apples, and three bananas that give a point each.",
        set: set!(
            SnakeOptions,
            apples = 3,
            apple_reward = -1.0,
            bananas = 3,
            banana_reward = 1.0
        ),
    },
    GameVariant {
        name: "snake-banana",
        summary: "The standard game with three bananas beside the apples, a point each.",
        set: set!(SnakeOptions, bananas = 3, banana_reward = 1.0),
    },
    GameVariant {
        name: "snake-downhill",
        summary: "The standard game on a slope: apples roll down, and new ones appear at the top.",
        set: set!(SnakeOptions, hill = Hill::Down),
    },
    GameVariant {
        name: "snake-greedy-enemy",
        summary: "The standard game against an enemy that goes for the apples.",
        set: set!(SnakeOptions, opponent = Opponent::Greedy),
    },
    GameVariant {
        name: "snake-duel",
        summary: "Two agents on the standard board, and no other snake.",
        set: set!(SnakeOptions, agents = 2, enemies = 0),
    },
    GameVariant {
        name: "snake-alone",
        summary: "The standard board without enemies.",
        set: set!(SnakeOptions, enemies = 0),
    },
    GameVariant {
        name: "snake-small",
        summary: "6x6, two apples, one enemy: the game of the preset for the built-in base.",
        set: set!(
            SnakeOptions,
            size = Some(6),
            apples = 2,
            enemies = 1,
            step_limit = 20
        ),
    },
];

pub(super) const PROBES: &[SemanticProbe] = &[
    SemanticProbe {
        name: "poison",
        summary: "Apples are poisonous and cost a point.",
        subtlety: Subtlety::Blatant,
        set: set!(SnakeOptions, apple_reward = -1.0),
    },
    SemanticProbe {
        name: "bananas",
        summary: "Apples are poisonous, and bananas give the points.",
        subtlety: Subtlety::Blatant,
        set: set!(
            SnakeOptions,
            apples = 3,
            apple_reward = -1.0,
            bananas = 3,
            banana_reward = 1.0
        ),
    },
    SemanticProbe {
        name: "swapped",
        summary: "Left means right, and right means left.",
        subtlety: Subtlety::Plain,
        set: set!(SnakeOptions, swapped = true),
    },
    SemanticProbe {
        name: "fires",
        summary: "There are fires, and each costs a point.",
        subtlety: Subtlety::Plain,
        set: set!(SnakeOptions, fires = 5, fire_reward = -1.0),
    },
    SemanticProbe {
        name: "double",
        summary: "Apples give two points.",
        subtlety: Subtlety::Plain,
        set: set!(SnakeOptions, apple_reward = 2.0),
    },
    SemanticProbe {
        name: "dieting",
        summary: "Apples give nothing and make longer all the same.",
        subtlety: Subtlety::Subtle,
        set: set!(SnakeOptions, apple_reward = 0.0),
    },
    SemanticProbe {
        name: "symbols",
        summary: "Other signs stand for heads, bodies and apples.",
        subtlety: Subtlety::Subtle,
        set: set!(SnakeOptions, symbols = Phrasing::Other),
    },
    SemanticProbe {
        name: "wording",
        summary: "The same rules in other words.",
        subtlety: Subtlety::Subtle,
        set: set!(SnakeOptions, wording = Phrasing::Other),
    },
];
