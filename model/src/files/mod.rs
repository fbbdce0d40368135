//! Files of Hugging Face's formats. What strangers wrote is not trusted, and nothing is left half-written.

pub(crate) mod checkpoint;
pub(crate) mod companions;
mod config;
pub(crate) mod disk;
pub(crate) mod fields;
mod model;
pub(crate) mod precision;
mod rope;
pub(crate) mod weights;
