//! The program as it is typed, in one test binary.

mod program;

mod commands;
mod help;
mod models;
mod names;
mod refusals;
mod strangers;
