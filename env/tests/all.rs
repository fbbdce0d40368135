//! What must hold of every game.

mod frozen_lake;
mod games;
mod snake;
