//! Files of records: one JSON object a line, complete or absent.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use lapwing_model::{open_regular, read_file};
use serde::de::DeserializeOwned;

use super::{Record, RecordError, TRAINED_OPTIONS, read_error, unfit, write_error};

/// The maximum number of bytes to read.
pub(super) const LARGEST: u64 = 4 << 30;

/// Such a file, open for appending.
#[derive(Debug)]
pub struct Jsonl {
    path: PathBuf,
    file: File,
}

impl Jsonl {
    /// Opens the file, or creates it if it does not exist.
    ///
    /// # Errors
    /// If it cannot be created or written.
    pub fn create(path: &Path) -> Result<Jsonl, RecordError> {
        let file = open_regular(path, File::options().create(true).append(true));
        Ok(Jsonl {
            path: path.to_owned(),
            file: file.map_err(write_error(path))?,
        })
    }

    /// Opens the file of a run to resume.
    ///
    /// # Errors
    /// If it does not exist, or cannot be written.
    pub(super) fn append(path: &Path) -> Result<Jsonl, RecordError> {
        match path.exists() {
            true => Jsonl::create(path),
            false => Err(incomplete(
                path,
                "does not exist: the lines of the run were removed",
            )),
        }
    }

    /// Appends a line.
    ///
    /// # Errors
    /// If it cannot be written; then no part of it is left.
    pub fn write(&mut self, record: &Record) -> Result<(), RecordError> {
        let line = serde_json::to_string(record).expect("metrics are plain values") + "\n";
        let before = self.bytes()?;
        self.file.write_all(line.as_bytes()).map_err(|error| {
            // Removes the part of the line that was written.
            let _ = self.file.set_len(before);
            write_error(&self.path)(error)
        })
    }

    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    /// If the length cannot be read.
    pub(crate) fn bytes(&self) -> Result<u64, RecordError> {
        let metadata = self.file.metadata().map_err(write_error(&self.path))?;
        Ok(metadata.len())
    }

    /// Syncs the file, so that its lines survive a crash of the machine.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn sync(&self) -> Result<(), RecordError> {
        self.file.sync_data().map_err(write_error(&self.path))
    }

    /// Truncates the file to this many bytes.
    ///
    /// # Errors
    /// If the file is shorter, or cannot be written.
    pub(crate) fn cut(&mut self, bytes: u64) -> Result<(), RecordError> {
        let found = self.bytes()?;
        if found < bytes {
            let problem = format!(
                "has {found} bytes, and had {bytes} when the checkpoint was made: lines of it were removed since"
            );
            return Err(incomplete(&self.path, &problem));
        }
        self.file.set_len(bytes).map_err(write_error(&self.path))
    }
}

fn incomplete(path: &Path, problem: &str) -> RecordError {
    let problem = format!(
        "{problem}, and the run cannot continue without them; start a new run from the trained weights ({TRAINED_OPTIONS})"
    );
    unfit(path, &problem)
}

/// Reads the lines of a file as records or as plain values. An incomplete last line, of a run that is writing or was killed,
/// is ignored.
///
/// # Errors
/// If the file cannot be read, or a line does not parse.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RecordError> {
    let unreadable = |reason: String| read_error(path, reason);
    let bytes = read_file(path, LARGEST).map_err(|e| unreadable(e.to_string()))?;
    // The incomplete line may end within a character.
    let end = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let whole = std::str::from_utf8(&bytes[..end]).map_err(|e| unreadable(e.to_string()))?;
    let record = |(number, line): (usize, &str)| {
        let wrong = |e: serde_json::Error| unreadable(format!("line {}: {e}", number + 1));
        serde_json::from_str(line).map_err(wrong)
    };
    whole.lines().enumerate().map(record).collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::record::metrics::{Evaluation, Warning};
    use lapwing_learn::metrics::{StepMetrics, UpdateMetrics, ValueUpdateMetrics};
    use lapwing_play::metrics::{Baselines, PlayMetrics, ReplyMetrics};

    #[test]
    fn lines_read_so_and_are_read_back() {
        let play = PlayMetrics {
            episodes: 200,
            return_mean: 0.125,
            return_std: 0.25,
            composite_return_mean: 0.0625,
            composite_return_std: 0.5,
            success_rate: 0.125,
            truncated_rate: 0.5,
            valid_action_rate: 0.96875,
            episode_length_mean: 7.25,
            turns: 1450,
            top_action: "right".to_owned(),
            top_action_share: 0.375,
            unread_no_tag: 1,
            unread_unknown_word: 2,
            unread_several_actions: 3,
            unread_cut_off: 4,
            replies: None,
        };
        let replied = PlayMetrics {
            replies: Some(ReplyMetrics {
                entropy: 1.25,
                reply_length_mean: 1.0,
                reply_cut_rate: 0.0,
            }),
            ..play.clone()
        };
        let baselines = Baselines {
            game: "frozen-lake".to_owned(),
            seed: 1,
            random: Some(play.clone()),
            scripted: None,
            best_possible: Some(1.0),
        };
        let evaluation = Evaluation {
            step: 0,
            time: 1.5,
            game: "frozen-lake".to_owned(),
            seconds_evaluation: 0.5,
            play: replied.clone(),
        };
        let learned = UpdateMetrics {
            kl: Some(0.001),
            clip_fraction: 0.0,
            grad_norm: 0.5,
            loss: -0.01,
            lr: 0.001,
            first_ratio_error: 0.0,
            tokens_computed: 0,
        };
        let step = StepMetrics {
            step: 3,
            time: 2.5,
            play: replied,
            games: vec![],
            tokens_played: Some(100_000),
            tokens_computed: Some(9_000),
            seconds_rollout: 0.1,
            seconds_update: 0.05,
            groups_skipped: Some(1),
            updates_dropped: 0,
            entropy_weight: None,
            effective_episodes: Some(2.5),
            measured: None,
            learned: Some(learned),
            critic: None,
            value: None,
        };
        // Without an update these keys are missing; a zero would be drawn in curves.
        let equal = StepMetrics {
            step: 4,
            groups_skipped: Some(4),
            effective_episodes: None,
            learned: None,
            ..step.clone()
        };
        // The names of a line's keys show which kind of learner wrote it.
        let network = StepMetrics {
            step: 5,
            tokens_played: None,
            tokens_computed: None,
            groups_skipped: None,
            learned: None,
            value: Some(ValueUpdateMetrics {
                updates: 8,
                td_loss: 0.25,
                td_error: 0.5,
                q_target: 0.75,
                gradient_norm: 1.5,
                epsilon: 0.05,
                learning_rate: 0.0005,
            }),
            ..step.clone()
        };
        let warning = Warning {
            step: 4,
            time: 2.5,
            check: "no-variance".to_owned(),
            value: 10.0,
            text: "nothing was learned".to_owned(),
        };
        let records = [
            Record::Baselines(baselines),
            Record::Evaluation(evaluation),
            Record::Step(step),
            Record::Step(equal),
            Record::Step(network),
            Record::Warning(warning),
        ];
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut jsonl = Jsonl::create(&path).unwrap();
        records
            .iter()
            .for_each(|record| jsonl.write(record).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_snapshot!(text);
        assert_eq!(read::<Record>(&path).unwrap(), records);
        // Files of older versions have other names.
        let before = text.replace("\"baselines\"", "\"yardsticks\"");
        std::fs::write(&path, before.replace("\"check\":", "\"watchman\":")).unwrap();
        assert_eq!(read::<Record>(&path).unwrap(), records);
        std::fs::write(&path, &text).unwrap();

        // Truncated lines are gone, and later lines follow in their place.
        let bytes = jsonl.bytes().unwrap();
        jsonl.write(&records[2]).unwrap();
        jsonl.cut(bytes).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        jsonl.write(&records[2]).unwrap();
        assert_eq!(read::<Record>(&path).unwrap().len(), records.len() + 1);
        // An incomplete line is not damage; an invalid one is.
        std::fs::write(&path, [text.as_bytes(), b"{\"kind\":\"\xc3"].concat()).unwrap();
        assert_eq!(read::<Record>(&path).unwrap(), records);
        std::fs::write(&path, format!("{text}odd\n")).unwrap();
        let error = read::<Record>(&path).unwrap_err().to_string();
        assert_snapshot!(error.replace(dir.path().to_str().unwrap(), "DIR"), @"DIR/metrics.jsonl: cannot be read: line 7: expected value at line 1 column 1");
        std::fs::write(&path, "").unwrap();
        let error = jsonl.cut(bytes).unwrap_err().to_string();
        assert!(error.contains("has 0 bytes"), "{error}");
    }

    /// Every write to this device fails because the disk is full.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut jsonl = Jsonl {
            path: "DIR/metrics.jsonl".into(),
            file,
        };
        let error = jsonl
            .write(&Record::Step(StepMetrics::default()))
            .unwrap_err();
        assert_snapshot!(error, @"DIR/metrics.jsonl: cannot be written: No space left on device (os error 28); free some space");
    }
}
