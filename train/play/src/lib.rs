//! Plays episodes: the referee, the players, scenes, prompts and replies.
//!
//! The [`Referee`] plays many episodes at once and asks a [`Player`] for every action. [`players`] holds models, scripts,
//! people and models behind an API; [`external`] holds games in other processes.

mod asking;
pub mod config;
pub mod episode;
mod error;
pub mod evaluate;
pub mod external;
pub mod framing;
pub mod metrics;
pub mod player;
pub mod players;
pub mod probe;
mod progress;
pub mod prompt;
pub mod referee;
pub mod reply;
pub mod sample;
pub mod scenes;
pub mod seeds;
pub mod world;

pub use episode::{Ending, Episode, Sampled, Turn};
pub use error::{PlayError, SettingError};
pub use framing::{Framing, Seen};
pub use player::{Ask, Player, Reply};
pub use progress::Progress;
pub use referee::{Referee, Seat};
pub use reply::{Form, Unread};
