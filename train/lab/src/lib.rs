//! Sweeps and their statistics, reports, exports, the device self-test, benchmarks, and pretraining of the built-in model.

pub mod bench;
mod csv;
pub mod doctor;
pub mod export;
pub mod pretrain;
pub mod report;
pub mod scores;
pub mod stats;
pub mod sweep;
pub mod tensorboard;
pub mod text_table;
