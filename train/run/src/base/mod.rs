//! The model that is built into the program.

pub mod files;
pub(crate) mod fingerprint;
pub mod source;
