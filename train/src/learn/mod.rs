//! How a step becomes a better adapter: a file for each algorithm, and what they share.

pub mod batch;
pub mod choose;
pub mod credit;
pub mod entropy;
pub mod filter;
pub mod group;
pub mod imitation;
pub mod measure;
pub mod ms_grpo;
pub mod ratio;
pub mod rollout;
pub mod temperature;
