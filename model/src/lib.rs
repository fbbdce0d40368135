//! Decoder language models with LoRA adapters, on lapwing-tensor.
//!
//! A [`Model`] is read from a Hugging Face directory or a GGUF file ([`ModelDirectory`]) or trained from new weights ([`initial_weights`]).
//! An [`Adapter`] holds the weights that post-training changes. Training batches are packed trees of tokens ([`TokenTree`]),
//! and the cache for sampling is a trie ([`KvArena`]): equal prefixes are computed once. [`Tokenizer`] and [`ChatTemplate`]
//! convert text; the rest of this crate handles token ids only. [`Hub`] downloads models by name. No file in this crate
//! depends on a game, an environment variable or the current directory.
//!
//! Tokenizers and templates are programs. Call [`run_sandbox_if_requested`] first in `main` and open the files with
//! [`TextFiles::untrusted`] to run those of an untrusted source in a sandboxed process.
//!
//! Start reading at `decoder/transformer.rs`, which holds the whole decoder.

mod adapter;
mod allowed_replies;
mod decoder;
mod device_memory;
mod error;
mod files;
mod generate;
mod hub;
mod reply_batch;
mod sampling;
mod text;

pub use adapter::{Adapter, GgufType, LoraConfig, StoredAdapter, Targets};
pub use allowed_replies::AllowedReplies;
pub use decoder::{
    KeptResults, KvArena, Linear, Model, ModelConfig, ModelFamily, ModelShape, PackedTree, Rope,
    RopeScaling, TokenNode, TokenTree, Tokens, initial_weights,
};
pub use error::ModelError;
pub use files::{
    CompanionFiles, FileReader, LoadReport, MEMORY, ModelDirectory, Precision, clear_memory,
    entries, file_of_model, is_dir, is_file, is_gguf, open_regular, read_file, read_text, reader,
    remove_temporary, write_atomically, write_file,
};
pub use generate::{GeneratedReply, generate};
pub use hub::{Hub, HubSnapshot, Repository};
pub use reply_batch::{
    BatchRequest, FinishReason, GenerationRequest, ReplyBatch, SPARE_ROWS, SampledToken,
    TokenScore, sampled_tokens,
};
pub use sampling::SamplingOptions;
pub use text::{
    ChatTemplate, Jinja, JinjaError, JinjaErrorKind, JinjaOptions, Message, TextFiles, Tokenizer,
    panic_becomes_error, run_sandbox_if_requested, separate_group,
};
