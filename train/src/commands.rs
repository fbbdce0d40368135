//! One file a command.

pub mod adapters;
pub mod eval;
pub mod games;
pub mod play;
pub mod pretrain;
pub mod train;
