//! Trains policies on played episodes.
//!
//! [`ms_grpo`] is the algorithm, from top to bottom. [`critic`] adds turn-level PPO to it, [`imitation`] trains on kept
//! episodes, and [`value`] holds DQN and PQN, which need no language model.

pub mod batch;
pub mod communicator;
pub mod config;
mod credit;
pub mod critic;
mod entropy;
mod error;
pub mod imitation;
pub mod language;
mod measure;
pub mod metrics;
pub mod ms_grpo;
pub mod ranks;
mod ratio;
#[cfg(test)]
mod testing;
pub mod value;

pub use error::LearnError;
