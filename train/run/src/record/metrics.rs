//! Records of evaluations, tests and warnings. Means are over episodes, with equal weight for each, unless a field says
//! otherwise.

use std::path::Path;

use serde::{Deserialize, Serialize};
use web_time::{SystemTime, UNIX_EPOCH};

use lapwing_model::read_file;
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

/// The results on test scenes, before and after training: the file `test.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TestResults {
    /// The baselines on the same scenes.
    pub baselines: Baselines,
    /// The results at `eval.temperature`.
    pub sampled: Vec<Evaluation>,
    /// The results with greedy decoding; empty if `sampled` is greedy.
    pub greedy: Vec<Evaluation>,
}

impl TestResults {
    /// Reads the results of a run; empty if it has none yet, or unreadable ones.
    pub fn read(run: &Path) -> TestResults {
        let bytes = read_file(&directory::test(run), 1 << 20).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
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
