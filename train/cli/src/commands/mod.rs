//! One file a command.

pub mod adapters;
pub mod agents;
pub mod api;
pub mod by_hand;
pub mod config;
pub mod doctor;
mod dry_run;
pub mod eval;
pub mod export;
pub mod games;
pub mod generate;
mod human;
mod keys;
pub mod merge;
mod opponent;
pub mod play;
pub mod pretrain;
pub mod probe;
pub mod report;
pub mod score;
pub mod serve;
pub mod shell;
pub mod subject;
pub mod sweep;
mod told;
pub mod train;
pub mod watch;
