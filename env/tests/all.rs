//! What must hold of every game.

mod foreign;
mod frozen_lake;
mod games;
mod pages;
mod pinned;
mod rooms;
mod snake;
mod snake_scores;
mod sokoban;
mod twenty48;
mod yardsticks;
