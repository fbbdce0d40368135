//! Post-trains small language models to act: MS-GRPO on any GPU.
//!
//! The algorithm is [`learn::ms_grpo`], to be read from top to bottom. Around it: [`play`] has the players and the
//! referee, [`run`] what a run holds and the loop over its steps, [`record`] what a run tells, [`base`] the small model
//! that is built in, [`value`] learners without language to hold it against, [`foreign`] the games that live in another
//! process, [`doctor`] whether a machine can train. Nothing here knows a terminal: what goes on is told to a [`Progress`],
//! what was measured to the [`record::Sink`]s.

// The examples name this crate from outside.
#[cfg(test)]
extern crate self as lapwing_train;

pub mod base;
pub mod doctor;
pub mod error;
#[cfg(test)]
mod examples;
pub mod folders;
pub mod foreign;
pub mod learn;
pub mod play;
pub mod progress;
pub mod record;
pub mod run;
pub mod value;

pub use error::Error;
pub use progress::Progress;
pub use run::config::{Config, ConfigError};
