//! A run: its config, what it holds, and the loop over its steps.

pub mod config;
pub mod memory;
pub mod seeds;
pub mod state;
pub mod trainer;
