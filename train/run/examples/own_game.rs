//! A custom game, learned by the built-in model: `cargo run --release -p lapwing-train --example own_game`.
use std::sync::atomic::AtomicBool;

use lapwing_env::{Game, GameError, Outcome, Scenario};
use lapwing_tensor::{Gpu, GpuOptions};
use lapwing_train::record::directory::{self, RunDirectory};
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::trainer::train;
use lapwing_train::{Config, Error};

/// A corridor of seven cells with a random goal. Its picture looks like those of the games that the model knows.
#[derive(Debug)]
struct Corridor([String; 2]);
struct Walk(usize, usize);

#[rustfmt::skip]
impl Scenario for Corridor {
    fn name(&self) -> &str { "corridor" }
    fn rules(&self) -> String { "You are P. Reach the goal G.".into() }
    fn actions(&self) -> &[String] { &self.0 }
    fn start(&self, scene: u64, _luck: u64) -> Result<Box<dyn Game>, GameError> {
        let (player, other) = (scene as usize % 7, scene as usize / 7 % 6);
        Ok(Box::new(Walk(player, (player + 1 + other) % 7)))
    }
    fn step_limit(&self) -> usize { 8 }
    fn options(&self) -> serde_json::Value { serde_json::json!({}) }
}

#[rustfmt::skip]
impl Game for Walk {
    fn observe(&self, _agent: usize) -> Result<String, GameError> {
        let cell = |i| if i == self.0 { "P" } else if i == self.1 { "G" } else { "_" };
        Ok((0..7).map(cell).collect::<Vec<_>>().join(" "))
    }
    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        match actions[0] {
            Some(0) => self.0 = self.0.saturating_sub(1),
            Some(_) => self.0 = (self.0 + 1).min(6),
            None => (),
        }
        let over = self.0 == self.1;
        Ok(vec![Outcome { reward: f64::from(u8::from(over)), over }])
    }
    fn succeeded(&self, _agent: usize) -> bool { self.0 == self.1 }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The game has 42 scenes, which recur without being retried.
    let set = "train.steps=40 train.group_size=12 train.retry=0 eval.every=0";
    let mut set: Vec<String> = set.split(' ').map(str::to_owned).collect();
    let gpu = Gpu::open(GpuOptions::default())?;
    let state = |set: &[String], purpose| -> Result<State, Error> {
        let game = Box::new(Corridor(["left", "right"].map(str::to_owned)));
        let config = Config::load("frozen-lake", set)?;
        State::with_games(&gpu, None, vec![game], config, purpose, &())
    };
    let mut training = state(&set, RunPurpose::Train)?;
    let home = tempfile::tempdir()?;
    let mut run = RunDirectory::create(home.path(), &training.config)?;
    train(
        &mut training,
        &mut run,
        &mut [],
        &(),
        &AtomicBool::new(false),
    )?;
    println!("{:?}", training.best);
    assert!(training.best.is_some_and(|best| best.score > 0.5));

    // Play with the best adapter. The config of the run names a game that is not built in, so it cannot be loaded by itself.
    let adapter = directory::best(home.path());
    set.push(format!("model.adapter={:?}", adapter.display().to_string()));
    let mut playing = state(&set, RunPurpose::Play)?;
    let seats = playing.evaluation_seats()?;
    let policy = &playing.config.policy;
    let episodes = playing.learner.play(policy, 0, &seats[..1], 0.0, &())?;
    println!("return {}", episodes[0].game_return());
    Ok(())
}
