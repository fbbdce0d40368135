//! The records of a run: metrics, a struct for each kind, and the sinks that receive them. The terminal is a sink like
//! any other.

pub mod directory;
pub mod episode_file;
mod error;
pub mod jsonl;
pub mod metrics;
mod new_file;

use serde::{Deserialize, Serialize};

use error::unfit;
pub use error::{RecordError, read_error, write_error};
use lapwing_learn::metrics::StepMetrics;
use lapwing_play::metrics::Baselines;
use lapwing_play::sample::KeptEpisode;
use metrics::{Evaluation, Warning};
pub use new_file::NewFile;

/// The options and keys that take trained weights, for messages.
pub(crate) const TRAINED_OPTIONS: &str =
    "--adapter, --model if all weights were trained, or value.network for dqn and pqn";

/// A record: a line of `metrics.jsonl` or, if it is an episode, of `episodes.jsonl`. Its `kind` is the name of the
/// variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Record {
    /// Reference scores of the evaluations, before the first one.
    #[serde(alias = "yardsticks")]
    Baselines(Baselines),
    /// The policy was evaluated.
    Evaluation(Evaluation),
    /// A training step was made.
    Step(StepMetrics),
    /// A health check fired.
    Warning(Warning),
    /// A complete episode.
    Episode(KeptEpisode),
}

/// Receives the records of a run: a file, a terminal, a plot.
pub trait Sink {
    /// Takes a record, whose numbers are all finite.
    ///
    /// # Errors
    /// If it cannot be kept.
    fn record(&mut self, record: &Record) -> Result<(), RecordError>;
}

impl Record {
    /// Returns the number of training steps completed.
    pub fn step(&self) -> usize {
        match self {
            Record::Baselines(_) => 0,
            Record::Evaluation(evaluation) => evaluation.step,
            Record::Step(metrics) => metrics.step,
            Record::Warning(warning) => warning.step,
            Record::Episode(sample) => sample.step,
        }
    }

    /// Checks that every number in it is finite.
    ///
    /// # Errors
    /// The error names the first that is not.
    pub fn check(&self) -> Result<(), RecordError> {
        if matches!(self, Record::Episode(_)) {
            // The action of an unreadable reply is null. The referee checks the rewards.
            return Ok(());
        }
        // serde_json writes non-finite numbers as null, and no metric is null on purpose.
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
    fn what_is_not_finite_is_refused_by_name() {
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
