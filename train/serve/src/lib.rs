//! An OpenAI-compatible HTTP server: requests and responses, the thread that owns the model, and HTTP.

mod answer;
mod error;
mod http;
mod reply;
mod request;
mod stream;
mod texts;
mod worker;

pub use http::{Server, now, run};
pub use texts::Texts;
pub use worker::{Ask, Places, Worker};
