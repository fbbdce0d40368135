//! Tests of the program, in one binary.

mod stub;
mod support;

mod all_weights;
mod api_players;
mod commands;
mod damaged_runs;
mod environments;
mod errors;
mod evaluations;
mod hub;
mod killed;
mod models;
mod refusals;
mod reports;
mod runs;
mod serving;
mod sweeps;
mod untrusted;
mod value_learners;
