//! A custom game, learned by the built-in model: `cargo run --release -p lapwing-train --example own_game`.
use std::sync::atomic::AtomicBool;

use lapwing_env::{Game, GameError, Outcome, Scenario};
use lapwing_tensor::{Gpu, GpuOptions};
use lapwing_train::Config;
use lapwing_train::record::directory::RunDirectory;
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::trainer::train;

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
    let set: Vec<String> = set.split(' ').map(str::to_owned).collect();
    let game = Box::new(Corridor(["left", "right"].map(str::to_owned)));
    let (gpu, config) = (
        Gpu::open(GpuOptions::default())?,
        Config::load("frozen-lake", &set)?,
    );
    let mut state = State::with_games(&gpu, None, vec![game], config, RunPurpose::Train, &())?;
    let home = tempfile::tempdir()?;
    let mut run = RunDirectory::create(home.path(), &state.config)?;
    train(&mut state, &mut run, &mut [], &(), &AtomicBool::new(false))?;
    println!("{:?}", state.best);
    assert!(state.best.is_some_and(|best| best.score > 0.5));
    Ok(())
}
