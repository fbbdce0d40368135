//! Text: conversations as a model was taught to read them, and token ids.

pub(crate) mod chat;
mod clock;
mod codec;
pub(crate) mod files;
pub(crate) mod guard;
mod process;
pub(crate) mod serve;
mod template;
pub(crate) mod tokenizer;
mod worker;
