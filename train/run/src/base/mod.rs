//! Model files: where they come from, how they are loaded, and the small built-in base model.

pub mod files;
pub(crate) mod fingerprint;
pub mod source;
