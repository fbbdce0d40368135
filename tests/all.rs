//! What must hold of lapwing as a whole, in one test binary so that one device serves all.

mod adapters;
mod compilers;
mod layout;
mod playing;
mod prompts;
mod records;
mod training;
mod whole;
