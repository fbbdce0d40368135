//! Scores of people: `lapwing play --human` records them, `lapwing eval` shows them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use lapwing_env::Scenario;
use lapwing_model::{open_regular, read_text};
use lapwing_play::Episode;
use lapwing_train::record::metrics::now;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::comparison::Row;
use crate::folders;

/// A finished game: a line of the file.
#[derive(Serialize, Deserialize)]
struct HumanScore {
    time: f64,
    game: String,
    options: Value,
    scene: u64,
    #[serde(rename = "return")]
    game_return: f64,
    success: bool,
    length: usize,
}

/// Mean scores of people in one game.
#[derive(Serialize)]
pub struct HumanScores {
    pub episodes: usize,
    pub return_mean: f64,
    pub success_rate: f64,
    pub episode_length_mean: f64,
    return_std: f64,
}

impl HumanScores {
    /// Returns a row of the table of players. The scenes differ from theirs, so intervals are missing.
    pub fn row(&self) -> Row {
        vec![
            ("", "human, other scenes".to_owned()),
            ("success", format!("{:.3}", self.success_rate)),
            ("return", format!("{:.3}", self.return_mean)),
            ("std", format!("{:.3}", self.return_std)),
            ("length", format!("{:.1}", self.episode_length_mean)),
            ("episodes", self.episodes.to_string()),
        ]
    }
}

/// Returns the file of the scores, if the environment names the user's home.
pub fn file() -> Option<PathBuf> {
    folders::data().map(|data| data.join("human.jsonl"))
}

pub fn keep(scenario: &dyn Scenario, scene: u64, episode: &Episode) -> io::Result<()> {
    let Some(path) = file() else {
        return Ok(());
    };
    let score = HumanScore {
        time: now(),
        game: scenario.name().to_owned(),
        options: scenario.options(),
        scene,
        game_return: episode.game_return(),
        success: episode.success,
        length: episode.turns.len(),
    };
    fs::create_dir_all(path.parent().unwrap_or(&path))?;
    let mut file = open_regular(&path, OpenOptions::new().create(true).append(true))?;
    // One write, so that the lines of two programs do not mix.
    file.write_all(format!("{}\n", serde_json::to_string(&score)?).as_bytes())
}

/// Returns the scores in this game with the same options; `None` if there are none. Unreadable lines are skipped: a newer
/// program may have written them.
pub fn of(scenario: &dyn Scenario) -> Option<HumanScores> {
    let text = read_text(&file()?, 1 << 30).ok()?;
    let options = scenario.options();
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let same = |line: &HumanScore| line.game == scenario.name() && line.options == options;
    let lines: Vec<HumanScore> = lines.filter(same).collect();
    if lines.is_empty() {
        return None;
    }
    let mean =
        |of: &dyn Fn(&HumanScore) -> f64| lines.iter().map(of).sum::<f64>() / lines.len() as f64;
    let return_mean = mean(&|line| line.game_return);
    // Of the population, as that of the players.
    let variance = mean(&|line| (line.game_return - return_mean).powi(2));
    Some(HumanScores {
        episodes: lines.len(),
        return_mean,
        return_std: variance.sqrt(),
        success_rate: mean(&|line| f64::from(u8::from(line.success))),
        episode_length_mean: mean(&|line| line.length as f64),
    })
}
