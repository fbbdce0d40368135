//! Turns played episodes into a better policy.
//!
//! [`ms_grpo`] is the algorithm, to be read from top to bottom; the other modules are its parts and variants. [`value`] holds
//! DQN and PQN, which learn without a language model.

pub mod batch;
pub mod choose;
pub mod config;
pub mod credit;
pub mod critic;
pub mod entropy;
mod error;
pub mod filter;
pub mod group;
pub mod head;
pub mod imitation;
pub mod language;
pub mod measure;
pub mod metrics;
pub mod ms_grpo;
pub mod ratio;
pub mod rollout;
pub mod temperature;
pub mod turn_ppo;
pub mod value;

pub use error::LearnError;
