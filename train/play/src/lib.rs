//! Plays episodes: the referee, the players, scenes, prompts and replies.
//!
//! The [`Referee`] plays many episodes at once and asks a [`Player`] for every action. [`players`] holds models, scripts,
//! people and models behind an API; [`external`] holds games in other processes.

pub mod config;
pub mod episode;
mod error;
pub mod evaluate;
pub mod external;
pub mod metrics;
pub mod player;
pub mod players;
pub mod probe;
mod progress;
pub mod prompt;
mod prompt_writer;
pub mod referee;
pub mod reply;
pub mod sample;
pub mod scenes;
pub mod seeds;
pub mod world;

pub use episode::{Episode, EpisodeEnd, Sampled, Turn};
pub use error::{PlayError, SettingError};
pub use player::{ActionRequest, Player, Reply};
pub use progress::Progress;
pub use prompt_writer::{AgentView, PromptWriter};
pub use referee::Referee;
pub use reply::{ReplyForm, UnreadReason};
pub use scenes::Seat;
