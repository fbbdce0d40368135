//! Post-trains small language models to act: MS-GRPO on any GPU.

pub mod config;

pub use config::{Config, ConfigError};
