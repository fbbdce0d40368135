//! Episodes: who plays, on which scenes, by whose rules, and how well.

mod asking;
pub mod episode;
pub mod evaluate;
pub mod framing;
pub mod player;
pub mod players;
pub mod probe;
pub mod prompt;
pub mod referee;
pub mod reply;
pub mod scenes;

pub use episode::{Ending, Episode, Sampled, Turn};
pub use framing::{Framing, Seen};
pub use player::{Ask, Player, Reply};
pub use referee::{Referee, Seat};
pub use reply::{Form, Unread};
