//! What people scored by hand: `lapwing play --human` keeps it, `lapwing eval` shows it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::folders;
use lapwing_env::Scenario;
use lapwing_lab::stats::mean_and_deviation;
use lapwing_play::Episode;
use lapwing_train::record::metrics::now;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One game that somebody played to its end: a line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    time: f64,
    game: String,
    options: Value,
    scene: u64,
    #[serde(rename = "return")]
    game_return: f64,
    success: bool,
    length: usize,
}

/// What people scored in one game, in all.
#[derive(Serialize)]
pub struct Human {
    pub episodes: usize,
    pub return_mean: f64,
    pub success_rate: f64,
    pub episode_length_mean: f64,
    return_std: f64,
}

impl Human {
    /// As a row among players; on scenes of their own choice, so without what pairs are made of.
    pub fn cells(&self) -> [String; 10] {
        [
            "human, other scenes".to_owned(),
            format!("{:.3}", self.success_rate),
            String::new(),
            format!("{:.3}", self.return_mean),
            format!("{:.3}", self.return_std),
            String::new(),
            String::new(),
            String::new(),
            format!("{:.1}", self.episode_length_mean),
            self.episodes.to_string(),
        ]
    }
}

/// Where it is kept, if the environment says where the user's home is.
pub fn file() -> Option<PathBuf> {
    folders::data().map(|data| data.join("human.jsonl"))
}

/// Adds a game that was played to its end.
///
/// # Errors
/// If the file cannot be written.
pub fn keep(scenario: &dyn Scenario, scene: u64, episode: &Episode) -> io::Result<()> {
    let Some(path) = file() else {
        return Ok(());
    };
    let line = Line {
        time: now(),
        game: scenario.name().to_owned(),
        options: scenario.options(),
        scene,
        game_return: episode.game_return(),
        success: episode.success,
        length: episode.turns.len(),
    };
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    // One write, so that two who play at once do not mix their lines.
    file.write_all(format!("{}\n", serde_json::to_string(&line)?).as_bytes())
}

/// What people scored in this game with just these options; `None` if nobody has played it here. Lines that cannot be
/// read are left out: a newer program may have written them.
pub fn of(scenario: &dyn Scenario) -> Option<Human> {
    let text = fs::read_to_string(file()?).ok()?;
    let options = scenario.options();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let same = |line: &Line| line.game == scenario.name() && line.options == options;
    let lines: Vec<Line> = lines.filter(same).collect();
    if lines.is_empty() {
        return None;
    }
    let over = |of: fn(&Line) -> f64| -> Vec<f64> { lines.iter().map(of).collect() };
    let (return_mean, return_std) = mean_and_deviation(&over(|line| line.game_return));
    Some(Human {
        episodes: lines.len(),
        return_mean,
        return_std,
        success_rate: mean_and_deviation(&over(|line| f64::from(u8::from(line.success)))).0,
        episode_length_mean: mean_and_deviation(&over(|line| line.length as f64)).0,
    })
}
