//! The model crate against reference numbers and against itself; one binary, so that all tests share one device.

mod adapter;
mod batch;
mod checkpoint;
mod decode;
mod golden;
mod hostile;
mod hub;
mod meaning;
mod memory;
mod merge;
mod packed;
mod support;
mod text;
