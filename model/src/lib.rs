//! Decoder language models with LoRA adapters, on lapwing-tensor.
//!
//! A [`Model`] is read from a Hugging Face directory or trained from nothing; an [`Adapter`] is what post-training
//! changes. Batches are packed trees of tokens ([`TokenTree`]), and so is the memory of what has been sampled
//! ([`Arena`]): whatever sequences share is computed once. Text is a matter of [`Tokenizer`] and [`ChatTemplate`];
//! everything else here knows token ids only. No file in this crate knows a game. A model is found by name with [`Hub`].
//!
//! Tokenizers and templates of strangers are programs: who calls [`isolate_text`] first in `main` and reads them by
//! [`TextFiles::guarded`] has them in a process of their own.
//!
//! Read first: `decoder/transformer.rs`, the whole decoder on one page.

mod adapter;
mod batch;
mod decoder;
mod error;
mod files;
mod generate;
mod hub;
mod memory;
mod sampling;
mod text;

pub use adapter::config::LoraConfig;
pub use adapter::lora::Adapter;
pub use adapter::peft::StoredAdapter;
pub use adapter::targets::Targets;
pub use batch::{Batch, Drawn, End, Joining, ROOM, Request, Told};
pub use decoder::arena::Arena;
pub use decoder::config::{Config, Family, Shape};
pub use decoder::initial::initial;
pub use decoder::linear::Linear;
pub use decoder::rope::{Rope, Scaling};
pub use decoder::transformer::{Model, Tokens};
pub use decoder::tree::{PackedTree, TokenTree};
pub use decoder::trie::Node;
pub use error::ModelError;
pub use files::checkpoint::Checkpoint;
pub use files::companions::Companions;
pub use files::disk::{read_text, write_aside, write_file};
pub use files::precision::{LoadOptions, LoadReport, Precision};
pub use generate::{Reply, generate};
pub use hub::{Hub, HubError, Repository, Snapshot};
pub use sampling::Sampling;
pub use text::{
    ChatTemplate, Jinja, JinjaError, JinjaErrorKind, JinjaOptions, MAX_JINJA_SOURCE, Message,
    TextFiles, Tokenizer, panic_becomes_error, run_sandbox_if_requested,
};
