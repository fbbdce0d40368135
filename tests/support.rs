//! What the tests of the whole share. The examples of `docs/libraries.md` are tested here.

#[cfg(doctest)]
#[doc = include_str!("../docs/libraries.md")]
pub struct Libraries;

pub mod smoke;
pub mod translation;
