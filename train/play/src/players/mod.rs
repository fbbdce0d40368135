//! The players, one file each.

pub mod api;
pub mod human;
pub mod model;
pub mod scripted;
pub mod search;
