//! Records of evaluations and warnings. Means are over episodes of equal weight unless noted otherwise.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use lapwing_play::metrics::PlayMetrics;

/// Returns the seconds since 1970 (UTC), for the `time` of a record.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// An evaluation of the policy on held-out scenes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Training steps before it.
    pub step: usize,
    /// Its end, in seconds since 1970 (UTC).
    pub time: f64,
    /// The game.
    pub game: String,
    /// Its duration in seconds.
    pub seconds_evaluation: f64,
    /// The results.
    #[serde(flatten)]
    pub play: PlayMetrics,
}

/// A warning of a health check.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Training steps so far.
    pub step: usize,
    /// Seconds since 1970 (UTC).
    pub time: f64,
    /// The name of the health check, a heading in `docs/health-checks.md`.
    #[serde(alias = "watchman")]
    pub check: String,
    /// The value that caused the warning.
    pub value: f64,
    /// The finding and what may help.
    pub text: String,
}
