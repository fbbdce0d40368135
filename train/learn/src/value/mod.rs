//! Yardsticks without language: learners that see a board as numbers and estimate what each action is worth.
//!
//! Two of them, each to be read from top to bottom: [`dqn`] (replay and a target network) and [`pqn`] (neither, on whole
//! episodes). Both see what [`sight`] makes of a game's planes, play through the referee like anybody else ([`player`]), and
//! share the network ([`network`]), the host's arithmetic of returns ([`returns`]) and the loop ([`trainer`]), whose
//! evaluations are those of a language run: same scenes, same seeds, same records. `docs/yardsticks.md` says what they are
//! good for.
//!
//! **Ours, not a reproduction.** The paper reports a DQN and names its learning rate, its exploration and its discount; its
//! network, its replay and its schedule are not published. What is here is a usual recipe, with numbers of its own.
//!
//! **Turns left.** Games know no limit; the referee stops an episode. With `value.turns_left` the share of turns that are
//! left is one more input, so that the limit can be seen coming, and it is an end like any other: nothing is expected
//! behind it. Without, the limit cannot be seen, and what would have followed is estimated (a bootstrap).

pub mod dqn;
pub mod learner;
pub mod network;
pub mod player;
pub mod pqn;
pub mod replay;
pub mod returns;
pub mod sight;
pub mod tree;
pub mod weights;
