//! Conversations, text and token ids.

mod caught_panic;
mod chat_program;
mod chat_template;
mod codec;
pub(crate) mod gguf_text;
mod jinja;
mod sandbox;
mod sandbox_child;
mod text_files;
mod text_server;
pub(crate) mod to_gguf;
mod tokenizer;

pub use caught_panic::panic_becomes_error;
pub use chat_template::{ChatTemplate, Message};
pub use jinja::{Jinja, JinjaError, JinjaOptions};
pub use minijinja::ErrorKind as JinjaErrorKind;
pub use sandbox::separate_group;
pub use sandbox_child::run_sandbox_if_requested;
pub use text_files::TextFiles;
pub use tokenizer::Tokenizer;
