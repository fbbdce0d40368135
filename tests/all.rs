//! Tests of lapwing as a whole, in one binary so that they share a device.

mod adapters;
mod compilers;
mod layout;
mod playing;
mod prompts;
mod records;
mod training;
mod whole;
