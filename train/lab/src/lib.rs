//! Many runs, and how to look at them: sweeps and their statistics, reports, exports, the examination of a machine, and the
//! making of the built-in base.

pub mod csv;
pub mod doctor;
pub mod export;
pub mod pretrain;
pub mod report;
pub mod scores;
pub mod stats;
pub mod sweep;
pub mod tensorboard;
pub mod text_table;
mod vocabulary;
