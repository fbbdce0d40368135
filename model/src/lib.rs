//! Decoder language models with LoRA adapters, on lapwing-tensor.

mod chat;
mod clock;
mod config;
mod error;
mod fields;
mod files;
mod random;
mod rope;
mod tokenizer;
mod tree;
mod trie;


pub use chat::{ChatTemplate, Message};
pub use config::{Config, Family, Linear};
pub use error::ModelError;
pub use rope::{Rope, Scaling};
pub use tokenizer::Tokenizer;
pub use tree::{PackedTree, TokenTree};
pub use trie::Node;
