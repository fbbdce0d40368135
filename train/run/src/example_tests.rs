//! The examples work.

#[path = "../examples/own_game.rs"]
mod own_game;
#[path = "../examples/play.rs"]
mod play;

use std::sync::atomic::AtomicBool;

use crate::Config;
use crate::record::directory::RunDirectory;
use crate::state::{RunPurpose, State};
use crate::trainer::train;

#[test]
fn a_game_of_ones_own_is_learned() {
    own_game::main().unwrap();
}

#[test]
fn a_trained_adapter_plays() {
    let home = tempfile::tempdir().unwrap();
    // One move is needed, and one is allowed: the first move is nearly always made.
    let set = [
        "game.options.map=[\"SG\"]",
        "game.options.step_limit=1",
        "train.steps=12",
        "train.groups=1",
        "eval.episodes=40",
    ];
    let config = Config::load("frozen-lake", &set.map(str::to_owned)).unwrap();
    let gpu = lapwing_tensor::check::gpu();
    let mut state = State::new(&gpu, None, config, RunPurpose::Train, &()).unwrap();
    let mut run = RunDirectory::create(home.path(), &state.config).unwrap();
    train(&mut state, &mut run, &mut [], &(), &AtomicBool::new(false)).unwrap();
    assert_eq!(play::play(home.path()).unwrap(), 1.0);
}
