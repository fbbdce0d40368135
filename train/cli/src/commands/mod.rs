//! One file a command.

pub mod adapters;
pub mod doctor;
pub mod eval;
pub mod export;
pub mod games;
pub mod generate;
pub mod merge;
pub mod play;
pub mod pretrain;
pub mod report;
pub mod score;
pub mod subject;
pub mod sweep;
pub mod train;
pub mod watch;
