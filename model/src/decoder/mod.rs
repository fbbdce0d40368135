//! The decoder: what it looks like, what it computes, and how its batches and its memory are laid out.

pub(crate) mod arena;
pub(crate) mod assemble;
pub(crate) mod config;
pub(crate) mod initial;
mod layout;
pub(crate) mod linear;
pub(crate) mod rope;
pub(crate) mod transformer;
pub(crate) mod tree;
pub(crate) mod trie;
