//! The models that runs use: the built-in one, a user's directory or file, or a repository.

pub mod files;
pub(crate) mod fingerprint;
pub mod source;
