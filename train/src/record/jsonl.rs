//! `metrics.jsonl`: a line of JSON for each record, whole or not there.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{Record, RecordError, Sink, write_error};

/// The file, open for writing.
#[derive(Debug)]
pub struct Jsonl {
    path: PathBuf,
    file: File,
}

impl Jsonl {
    /// Makes the file, which must not exist.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(path: &Path) -> Result<Jsonl, RecordError> {
        let file = File::create_new(path).map_err(write_error(path))?;
        Ok(Jsonl {
            path: path.to_owned(),
            file,
        })
    }
}

impl Sink for Jsonl {
    fn record(&mut self, record: &Record) -> Result<(), RecordError> {
        let line = serde_json::to_string(record).expect("metrics are plain values") + "\n";
        let before = self.file.metadata().map_err(write_error(&self.path))?.len();
        self.file.write_all(line.as_bytes()).map_err(|error| {
            // Cuts off the part of the line that did fit.
            let _ = self.file.set_len(before);
            write_error(&self.path)(error)
        })
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::record::Evaluation;
    use crate::record::metrics::{EvalMetrics, Learned, StepMetrics};

    #[test]
    fn lines_read_so_and_are_read_back() {
        let eval = EvalMetrics {
            game: "frozen-lake".to_owned(),
            episodes: 200,
            return_mean: 0.125,
            composite_return_mean: 0.0625,
            success_rate: 0.125,
            valid_action_rate: 0.96875,
            episode_length_mean: 7.25,
        };
        let learned = Learned {
            kl: 0.001,
            clip_fraction: 0.0,
            grad_norm: 0.5,
            loss: -0.01,
            lr: 0.001,
            tokens_computed: 0,
        };
        let step = StepMetrics {
            step: 3,
            return_mean: 0.25,
            success_rate: 0.25,
            valid_action_rate: 0.99,
            entropy: 1.2,
            tokens_played: 100_000,
            tokens_computed: 9_000,
            seconds_rollout: 0.1,
            seconds_update: 0.05,
            episode_length_mean: 8.5,
            return_std: 0.43,
            groups_skipped: 1,
            learned: Some(learned),
        };
        // Nothing is learned if all returns are equal, and no curve is drawn through a zero that was not measured.
        let equal = StepMetrics {
            step: 4,
            groups_skipped: 4,
            learned: None,
            ..step.clone()
        };
        let records = [
            Record::Evaluation(Evaluation { step: 0, eval }),
            Record::Step(step),
            Record::Step(equal),
        ];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut jsonl = Jsonl::create(&path).unwrap();
        records
            .iter()
            .for_each(|record| jsonl.record(record).unwrap());
        let text = std::fs::read_to_string(path).unwrap();
        assert_snapshot!(text);
        let read: Vec<Record> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read, records);
    }

    /// Every write to this device finds the disk full.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut jsonl = Jsonl {
            path: "DIR/metrics.jsonl".into(),
            file,
        };
        let error = jsonl
            .record(&Record::Step(StepMetrics::default()))
            .unwrap_err();
        assert_snapshot!(error, @"cannot write DIR/metrics.jsonl: No space left on device (os error 28); free some space, or choose another place with --out");
    }
}
