//! The program as it is typed, in one test binary.

mod program;
mod stub;

mod abuse;
mod api;
mod commands;
mod environments;
mod errors;
mod examined;
mod help;
mod killed;
mod models;
mod names;
mod networks;
mod refusals;
mod reports;
mod runs;
mod serve;
mod strangers;
mod sweeps;
mod whole;
