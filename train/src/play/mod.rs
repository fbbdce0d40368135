//! Episodes: who plays, on which scenes, by whose rules, and how well.

pub mod episode;
pub mod evaluate;
pub mod player;
pub mod players;
pub mod prompt;
pub mod referee;
pub mod scenes;

pub use episode::{Ending, Episode, Turn};
pub use player::{Ask, Player, Reply, Sampled};
pub use referee::{Referee, Seat};
