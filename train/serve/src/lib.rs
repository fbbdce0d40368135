//! An OpenAI-compatible HTTP server for a model and, optionally, an adapter.
//!
//! `http.rs` accepts requests, `request.rs` and `prompts.rs` turn them into token ids, `model_thread.rs` decodes all replies
//! in one batch, and `detokenizer.rs`, `response.rs` and `stream.rs` turn the tokens into JSON.

mod detokenizer;
mod error;
mod http;
mod model_thread;
mod options;
mod prompts;
mod request;
mod response;
mod stream;

pub use http::{ServeError, serve};
pub use options::ServeOptions;
