//! A run: its config, what it holds, and the loop over its steps.

pub mod checkpoint;
pub mod config;
pub mod memory;
pub mod samples;
pub mod seeds;
pub mod snapshot;
pub mod state;
pub mod sweep;
pub mod trainer;
pub mod watchmen;
pub mod world;
