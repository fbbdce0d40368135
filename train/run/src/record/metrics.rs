//! What is measured. Means are over episodes, each counting the same however long it is, unless they say else.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use lapwing_play::metrics::PlayMetrics;

/// Seconds since 1970 (UTC), for the `time` of a record.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// An examination of the policy on held-out scenes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Training steps done before it.
    pub step: usize,
    /// When it was over, in seconds since 1970 (UTC).
    pub time: f64,
    /// The game.
    pub game: String,
    /// Seconds that it took.
    pub seconds_evaluation: f64,
    /// How it went.
    #[serde(flatten)]
    pub play: PlayMetrics,
}

/// Something that a user should look at.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Training steps done by then.
    pub step: usize,
    /// When, in seconds since 1970 (UTC).
    pub time: f64,
    /// Which watchman says it; `docs/health-checks.md` has a paragraph of this name.
    #[serde(alias = "watchman")]
    pub check: String,
    /// The number that it goes by.
    pub value: f64,
    /// What was seen, and what may help.
    pub text: String,
}
