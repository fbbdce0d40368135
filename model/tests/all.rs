//! The model crate against reference numbers and against itself; one binary, so that all tests share one device.

mod adapter;
mod chat;
mod decode;
mod device_memory;
mod golden;
mod hostile;
mod hub;
mod meaning;
mod merge;
mod model_directory;
mod packed;
mod reply_batch;
mod support;
