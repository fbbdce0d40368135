//! Adapters: which layers they change, what they add there, and the files that they are kept in.

pub(crate) mod config;
pub(crate) mod lora;
mod make;
mod merge;
pub(crate) mod peft;
mod site;
pub(crate) mod targets;
