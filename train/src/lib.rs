//! Post-trains small language models to act: MS-GRPO on any GPU.
//!
//! The algorithm is [`ms_grpo`], to be read from top to bottom. Beside it stand what any such algorithm needs: the
//! agent ([`agent`]), the referee ([`rollout`]), what goes through the model in an update ([`batch`]), evaluation,
//! configuration and reporting.

pub mod aaw;
pub mod agent;
pub mod base;
pub mod batch;
pub mod config;
pub mod error;
pub mod evaluate;
pub mod memory;
pub mod ms_grpo;
pub mod pretrain;
pub mod progress;
pub mod report;
pub mod rollout;
pub mod run;
pub mod run_dir;
pub mod seeds;
pub mod vocabulary;

pub use config::{Config, ConfigError};
pub use error::Error;
