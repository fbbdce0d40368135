//! The variants and probes of Snake.

use super::options::{Hill, Opponent, SnakeOptions};
use crate::options::{Phrasing, probes, variants};
use crate::{GameVariant, SemanticProbe};

pub(super) const VARIANTS: &[GameVariant] = variants! {
    SnakeOptions;
    /// 10x10, five apples, one random enemy, 20 rounds: the author's game, and the defaults.
    "snake-standard": size = Some(10), apples = 5, enemies = 1, step_limit = 20;
    /// The standard game with poisonous apples, which cost a point each.
    "snake-poison-apple": apple_reward = -1.0;
    /// Three poisonous apples, and three bananas that give a point each.
    "snake-poison-apple-and-banana": apples = 3, apple_reward = -1.0, bananas = 3, banana_reward = 1.0;
    /// The standard game with three bananas in addition to the apples, a point each.
    "snake-banana": bananas = 3, banana_reward = 1.0;
    /// The standard game on a slope: apples roll down, and new ones appear at the top.
    "snake-downhill": hill = Hill::Down;
    /// The standard game against an enemy that moves towards the apples.
    "snake-greedy-enemy": opponent = Opponent::Greedy;
    /// Two agents on the standard board, and no other snake.
    "snake-duel": agents = 2, enemies = 0;
    /// The standard board without enemies.
    "snake-alone": enemies = 0;
    /// 6x6, two apples, one enemy: the game of the preset for the built-in base.
    "snake-small": size = Some(6), apples = 2, enemies = 1, step_limit = 20;
};

pub(super) const PROBES: &[SemanticProbe] = probes! {
    SnakeOptions;
    /// Apples are poisonous and cost a point.
    "poison", Blatant: apple_reward = -1.0;
    /// Apples are poisonous, and bananas give the points.
    "bananas", Blatant: apples = 3, apple_reward = -1.0, bananas = 3, banana_reward = 1.0;
    /// The words left and right swap their meanings.
    "swapped", Plain: swapped = true;
    /// There are fires, and each costs a point.
    "fires", Plain: fires = 5, fire_reward = -1.0;
    /// Apples give two points.
    "double", Plain: apple_reward = 2.0;
    /// Apples give nothing but still make the snake longer.
    "dieting", Subtle: apple_reward = 0.0;
    /// Other signs stand for heads, bodies and apples.
    "symbols", Subtle: symbols = Phrasing::Other;
    /// The same rules in other words.
    "wording", Subtle: wording = Phrasing::Other;
};
