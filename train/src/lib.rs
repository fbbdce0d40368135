//! Post-trains small language models to act: MS-GRPO on any GPU.

pub mod config;
pub mod progress;
pub mod report;
pub mod run_dir;

pub use config::{Config, ConfigError};
