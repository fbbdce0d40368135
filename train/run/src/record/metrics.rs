//! Records of evaluations, tests and warnings. Means are over episodes, with equal weight for each, unless a field says
//! otherwise.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use lapwing_play::metrics::{Baselines, PlayMetrics};

use super::directory;

/// Returns the seconds since 1970 (UTC), for the `time` of a record.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// An evaluation of the policy on held-out scenes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Training steps completed before it.
    pub step: usize,
    /// The end of the evaluation, in seconds since 1970 (UTC).
    pub time: f64,
    /// The game.
    pub game: String,
    /// Its duration in seconds.
    pub seconds_evaluation: f64,
    /// Its episode statistics.
    #[serde(flatten)]
    pub play: PlayMetrics,
}

/// The results of a run's weights on test scenes, which none of its evaluations plays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestResults {
    /// Number of games.
    pub games: usize,
    /// Whether the scenes differ from those of the evaluations. They do not if the game has too few held-out scenes.
    pub other_scenes: bool,
    /// The baselines on the same scenes.
    pub baselines: Baselines,
    /// The weights before training, at the best evaluation, and after training.
    pub weights: Vec<TestedWeights>,
}

/// The results of the weights of one step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestedWeights {
    /// Training steps completed.
    pub step: usize,
    /// The test's duration in seconds.
    pub seconds_test: f64,
    /// The episode statistics at `eval.temperature`.
    #[serde(flatten)]
    pub play: PlayMetrics,
    /// The same with greedy decoding; `None` if `play` is greedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub greedy: Option<PlayMetrics>,
}

impl TestResults {
    /// Reads the results of the run in this directory; `None` if it has none yet, or unreadable ones.
    pub fn read(run: &Path) -> Option<TestResults> {
        serde_json::from_slice(&fs::read(directory::test(run)).ok()?).ok()
    }

    /// Returns the results of the weights of this step.
    pub fn of_step(&self, step: usize) -> Option<&TestedWeights> {
        self.weights.iter().find(|tested| tested.step == step)
    }
}

/// A finding of a health check.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Training steps completed.
    pub step: usize,
    /// The time, in seconds since 1970 (UTC).
    pub time: f64,
    /// The name of the health check; `docs/health-checks.md` has a paragraph of this name.
    #[serde(alias = "watchman")]
    pub check: String,
    /// The number that it checks.
    pub value: f64,
    /// The finding and its remedy.
    pub text: String,
}
