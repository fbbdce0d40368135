//! One training run: its config, its state and checkpoints, the training loop, and the records that it writes.
//!
//! [`trainer::train`] is the loop. It works with any [`learner::Learner`].

pub mod base;
pub mod checkpoint;
pub mod config;
mod error;
#[cfg(test)]
mod example_tests;
pub mod health;
pub mod learner;
#[cfg(test)]
mod learning_tests;
pub mod memory;
pub mod ranks;
pub mod record;
pub mod runs;
pub mod samples;
pub mod snapshot;
pub mod state;
pub mod trainer;
pub mod warmup;

// The examples name this crate from outside.
#[cfg(test)]
extern crate self as lapwing_train;

pub use config::{Config, ConfigError};
pub use error::Error;
