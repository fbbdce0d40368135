//! The commands, one file each.

mod agents;
pub mod bench;
pub mod by_hand;
pub mod config;
pub mod devices;
pub mod doctor;
pub mod eval;
pub mod export;
pub mod games;
pub mod generate;
mod human_scores;
mod loaded_model;
pub mod merge;
mod opponent;
mod other_player;
pub mod play;
pub mod pretrain;
pub mod probe;
pub mod report;
pub mod runs;
pub mod score;
pub mod serve;
pub mod shell;
pub mod sweep;
pub mod train;
pub mod watch;

pub use loaded_model::InputError;
