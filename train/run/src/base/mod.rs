//! The small base model that is built into the program, and how such a model is made.

pub mod files;
pub(crate) mod fingerprint;
pub mod source;
