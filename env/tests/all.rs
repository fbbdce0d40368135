//! What must hold of every game.

mod foreign;
mod frozen_lake;
mod games;
mod snake;
mod twenty48;
mod worlds;
