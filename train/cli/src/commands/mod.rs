//! One file a command.

pub mod adapters;
pub mod config;
mod dry_run;
pub mod eval;
pub mod games;
pub mod generate;
mod keys;
pub mod merge;
pub mod play;
pub mod pretrain;
pub mod score;
pub mod shell;
pub mod subject;
pub mod sweep;
pub mod train;
