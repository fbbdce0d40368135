//! The options of the server.

use std::sync::atomic::AtomicBool;

use lapwing_model::{Adapter, ChatTemplate, KvArena, Model, Tokenizer};

/// The model to serve, and how.
pub struct ServeOptions {
    /// The model.
    pub model: Model,
    /// Its adapter, if any.
    pub adapter: Option<Adapter>,
    /// The arena of all replies.
    pub arena: KvArena,
    /// The model's tokenizer.
    pub tokenizer: Tokenizer,
    /// The model's chat template. Without one, conversations are refused.
    pub template: Option<ChatTemplate>,
    /// The model's name in requests.
    pub name: String,
    /// Maximum number of tokens of prompt and reply together.
    pub context: usize,
    /// Maximum number of replies that are decoded together.
    pub batch: usize,
    /// Maximum number of waiting replies.
    pub queue: usize,
    /// The API key that requests need, if any.
    pub key: Option<String>,
    /// Names that requests may use for this machine, beside `localhost`.
    pub hosts: Vec<String>,
    /// Stops the server when it is set.
    pub stop: &'static AtomicBool,
    /// Prints a line for each request.
    pub log: fn(&str),
    /// Prints an error that ends requests.
    pub report: fn(&str),
}
