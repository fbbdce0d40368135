//! What must hold of every game.

mod foreign;
mod frozen_lake;
mod games;
mod snake;
mod sokoban;
mod twenty48;
mod worlds;
