//! Value learners: networks that estimate the value of each action from the feature planes of a game, without language.
//!
//! `dqn` uses replay and a target network, `pqn` neither; each file reads from top to bottom. Both encode a game with
//! `encoder`, play through the referee (`player`), and share the network (`network`) and the arithmetic of returns
//! (`returns`). `docs/value-learners.md` says what they are good for.
//!
//! **This is not a reproduction.** The paper reports a DQN with its learning rate, exploration and discount, but publishes
//! neither network nor replay nor schedule. These are usual recipes with their own numbers.
//!
//! **Turns left.** Games know no step limit; the referee stops an episode. With `value.turns_left` the share of turns left is
//! an input, and the limit is a terminal state. Without it, the value after the limit is bootstrapped.

mod dqn;
mod encoder;
pub mod learner;
mod network;
mod player;
mod pqn;
mod replay;
mod returns;
mod step;
mod sum_tree;
#[cfg(test)]
mod tests;
