//! Decoder language models with LoRA adapters, on lapwing-tensor.
//!
//! A [`Model`] is read from a Hugging Face directory or trained from nothing; an [`Adapter`] is what post-training
//! changes. Batches are packed trees of tokens ([`TokenTree`]), and so is the memory of what has been sampled
//! ([`Arena`]): whatever sequences share is computed once. Text is a matter of [`Tokenizer`] and [`ChatTemplate`];
//! everything else here knows token ids only. No file in this crate knows a game.
//!
//! Read first: `transformer.rs`, the whole decoder on one page.

mod arena;
mod chat;
mod clock;
mod config;
mod error;
mod fields;
mod files;
mod generate;
mod layout;
mod linear;
mod load;
mod lora;
mod random;
mod rope;
mod tokenizer;
mod transformer;
mod tree;
mod trie;
mod weights;

pub use arena::Arena;
pub use chat::{ChatTemplate, Message};
pub use config::{Config, Family};
pub use error::ModelError;
pub use generate::{Reply, Request, Sampling, generate};
pub use linear::Linear;
pub use load::{LoadOptions, LoadReport, Precision, initial};
pub use lora::{Adapter, LoraConfig};
pub use rope::{Rope, Scaling};
pub use tokenizer::Tokenizer;
pub use transformer::{Model, Tokens};
pub use tree::{PackedTree, TokenTree};
pub use trie::Node;
