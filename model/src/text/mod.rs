//! Text: conversations as a model was taught to read them, and token ids.

pub(crate) mod chat;
mod clock;
pub(crate) mod guard;
pub(crate) mod tokenizer;
mod worker;
