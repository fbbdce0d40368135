//! What the tests of the whole share. The README's examples are tested here.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

pub mod smoke;
pub mod translation;
