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
mod checkpoint;
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
mod memory;
mod merge;
mod peft;
mod random;
mod rope;
mod targets;
mod tokenizer;
mod transformer;
mod tree;
mod trie;
mod weights;

pub use arena::Arena;
pub use chat::{ChatTemplate, Message};
pub use checkpoint::{Checkpoint, LoadOptions, LoadReport, Precision};
pub use config::{Config, Family};
pub use error::ModelError;
pub use generate::{ROOM, Reply, Request, Sampling, generate};
pub use linear::Linear;
pub use load::initial;
pub use lora::{Adapter, LoraConfig};
pub use peft::StoredAdapter;
pub use rope::{Rope, Scaling};
pub use targets::Targets;
pub use tokenizer::Tokenizer;
pub use transformer::{Model, Tokens};
pub use tree::{PackedTree, TokenTree};
pub use trie::Node;
