//! Tests of all games through the public interface.

mod baselines;
mod external;
mod frozen_lake;
mod games;
mod pages;
mod pinned;
mod rooms;
mod snake;
mod snake_scores;
mod sokoban;
mod twenty48;
