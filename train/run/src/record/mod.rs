//! Records of a run, and the sinks that receive them: files, terminals, plots.

pub mod directory;
pub mod episode_file;
mod error;
pub mod jsonl;
pub mod metrics;

use serde::{Deserialize, Serialize};

pub use error::RecordError;
pub use error::write_error;
use lapwing_learn::metrics::StepMetrics;
use lapwing_play::metrics::Baselines;
use lapwing_play::sample::KeptEpisode;
use metrics::{Evaluation, Warning};

/// A line of `metrics.jsonl` or, for an episode, of `episodes.jsonl`. The field `kind` names the variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// Baseline scores, recorded before the first evaluation.
    #[serde(alias = "yardsticks")]
    Baselines(Baselines),
    /// An evaluation of the policy.
    Evaluation(Evaluation),
    /// A training step.
    Step(StepMetrics),
    /// A warning of a health check.
    Warning(Warning),
    /// An episode with all its turns.
    Episode(KeptEpisode),
}

/// Receives the records of a run as they are made.
pub trait Sink {
    /// Receives a record. All its numbers are finite.
    ///
    /// # Errors
    /// If the record cannot be written.
    fn record(&mut self, record: &Record) -> Result<(), RecordError>;
}

impl Record {
    /// The number of training steps done when it was recorded.
    pub fn step(&self) -> usize {
        match self {
            Record::Baselines(_) => 0,
            Record::Evaluation(evaluation) => evaluation.step,
            Record::Step(metrics) => metrics.step,
            Record::Warning(warning) => warning.step,
            Record::Episode(sample) => sample.step,
        }
    }

    /// Checks that every number is finite.
    ///
    /// # Errors
    /// If one is not. The error names the first.
    pub fn check(&self) -> Result<(), RecordError> {
        if matches!(self, Record::Episode(_)) {
            // An unreadable reply has the action null. The referee checks the rewards.
            return Ok(());
        }
        // serde_json writes numbers that are not finite as null. No metric is null otherwise.
        let value = serde_json::to_value(self).expect("metrics are plain values");
        let step = self.step();
        null_in(&value, "").map_or(Ok(()), |metric| {
            Err(RecordError::NotFinite { step, metric })
        })
    }
}

/// Returns the dotted name of the first null.
fn null_in(value: &serde_json::Value, name: &str) -> Option<String> {
    match value {
        serde_json::Value::Null => Some(name.to_owned()),
        serde_json::Value::Object(map) => map.iter().find_map(|(key, value)| {
            let name = if name.is_empty() {
                key.clone()
            } else {
                format!("{name}.{key}")
            };
            null_in(value, &name)
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use lapwing_learn::metrics::UpdateMetrics;
    use lapwing_play::metrics::PlayMetrics;

    #[test]
    fn numbers_that_are_not_finite_are_refused_by_name() {
        let learned = UpdateMetrics {
            kl: Some(f64::NAN),
            ..UpdateMetrics::default()
        };
        let metrics = StepMetrics {
            step: 2,
            learned: Some(learned),
            ..StepMetrics::default()
        };
        assert_snapshot!(Record::Step(metrics).check().unwrap_err(), @"step 2: `kl` is not a finite number: training has diverged; try a smaller train.lr");
        let play = PlayMetrics {
            return_mean: f64::INFINITY,
            ..PlayMetrics::default()
        };
        let evaluation = Evaluation {
            step: 3,
            play,
            ..Evaluation::default()
        };
        assert_snapshot!(Record::Evaluation(evaluation).check().unwrap_err(), @"step 3: `return_mean` is not a finite number: training has diverged; try a smaller train.lr");
        Record::Step(StepMetrics::default()).check().unwrap();
    }
}
