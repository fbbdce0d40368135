//! Plays with a trained adapter: `cargo run --release -p lapwing-train --example play -- runs/frozen-lake-1`.
use std::path::Path;

use lapwing_tensor::{Gpu, GpuOptions};
use lapwing_train::record::directory;
use lapwing_train::state::{RunPurpose, State};
use lapwing_train::{Config, Error};

/// Prints an episode of a run's best adapter on the first scene of its evaluation, and returns the episode's return.
pub fn play(run: &Path) -> Result<f64, Error> {
    let adapter = directory::best(run).display().to_string();
    let config = directory::config(run);
    let config = Config::load(
        &config.to_string_lossy(),
        &[format!("model.adapter={adapter:?}")],
    )?;
    let gpu = Gpu::open(GpuOptions::default())?;
    let mut state = State::new(&gpu, None, config, RunPurpose::Play, &())?;
    let seats = state.evaluation_seats()?;
    // Temperature 0 samples the most likely token.
    let episode = state
        .learner
        .play(&state.config.policy, 0, &seats[..1], 0.0, &())?
        .remove(0);
    for turn in &episode.turns {
        println!("{}\n> {}\n", turn.observation, turn.text);
    }
    println!("{}\nreturn {}", episode.last, episode.game_return());
    Ok(episode.game_return())
}

#[allow(dead_code)] // a test calls play instead
fn main() -> Result<(), Error> {
    let run = std::env::args()
        .nth(1)
        .unwrap_or("runs/frozen-lake-1".to_owned());
    play(Path::new(&run)).map(drop)
}
