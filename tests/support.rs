//! Shared parts of these tests. The examples of `docs/libraries.md` are tested here.

#[cfg(doctest)]
#[doc = include_str!("../docs/libraries.md")]
pub struct Libraries;

pub mod smoke;
pub mod translation;
