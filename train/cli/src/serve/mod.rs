//! What `lapwing serve` is made of: requests and answers in OpenAI's form, the thread that owns the model, and HTTP.

pub mod answer;
pub mod error;
pub mod http;
pub mod reply;
pub mod request;
pub mod stream;
pub mod texts;
pub mod worker;
