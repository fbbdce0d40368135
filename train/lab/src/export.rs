//! Exports the metrics of a run to other formats.

use std::fs;
use std::path::{Path, PathBuf};

use crate::csv;
use crate::tensorboard::{EventFile, is_event_file};
use lapwing_train::record::{RecordError, directory, jsonl, write_error};

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An event file of TensorBoard.
    TensorBoard,
    /// `steps.csv` and `evaluations.csv`.
    Csv,
}

/// Writes the metrics of a run to `out`, which must be new or empty. Without `out`, writes to a folder in the run
/// directory with the name of the format, and replaces earlier exports there. Returns the paths of the files.
///
/// # Errors
/// If `run` is not a run directory, its metrics cannot be read, the folder has other files or cannot be written, or the
/// run is writing to it.
pub fn export(run: &Path, format: Format, out: Option<&Path>) -> Result<Vec<PathBuf>, RecordError> {
    directory::is_run(run)?;
    let folder = match (out, format) {
        (Some(out), _) => out.to_owned(),
        (None, Format::TensorBoard) => directory::tensorboard(run),
        (None, Format::Csv) => run.join("csv"),
    };
    let is_ours = |name: &str| match format {
        Format::TensorBoard => is_event_file(name),
        Format::Csv => CSV_FILES.iter().any(|(file, _)| *file == name),
    };
    if out.is_some() {
        directory::check_free(&folder)?;
    } else if folder.exists() {
        for entry in fs::read_dir(&folder).map_err(write_error(&folder))? {
            let path = entry.map_err(write_error(&folder))?.path();
            if !is_ours(&path.file_name().unwrap_or_default().to_string_lossy()) {
                return Err(RecordError::Foreign(path));
            }
        }
        if format == Format::TensorBoard && directory::is_in_use(run) {
            // The run is writing to its event file.
            return Err(RecordError::InUse(run.to_owned()));
        }
    }
    let records = jsonl::read(&directory::metrics(run))?;
    if format == Format::TensorBoard {
        return Ok(vec![EventFile::with(&folder, &records)?.path]);
    }
    fs::create_dir_all(&folder).map_err(write_error(&folder))?;
    let write = |(name, kind): (&str, &str)| {
        let path = folder.join(name);
        // Of an earlier export; a pipe in its place would wait for a reader.
        let _ = fs::remove_file(&path);
        fs::write(&path, csv::metrics(&records, kind)).map_err(write_error(&path))?;
        Ok(path)
    };
    CSV_FILES.into_iter().map(write).collect()
}

/// Each file with its kind of records.
const CSV_FILES: [(&str, &str); 2] = [("steps.csv", "step"), ("evaluations.csv", "evaluation")];

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use lapwing_learn::metrics::StepMetrics;
    use lapwing_train::Config;
    use lapwing_train::record::directory::RunDirectory;
    use lapwing_train::record::{Record, Sink};

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn only_what_was_exported_before_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let text = |error: RecordError| {
            error
                .to_string()
                .replace(dir.path().to_str().unwrap(), "DIR")
        };
        let mut run = RunDirectory::create(&path, &Config::default()).unwrap();
        run.record(&Record::Step(StepMetrics::default())).unwrap();

        // The event file of a run in progress is kept; CSV files can be written.
        let first = export(&path, Format::TensorBoard, None).unwrap();
        assert_snapshot!(text(export(&path, Format::TensorBoard, None).unwrap_err()), @"DIR/run is in use by another lapwing: wait until it is done");
        export(&path, Format::Csv, None).unwrap();
        drop(run);
        for format in [Format::TensorBoard, Format::Csv] {
            export(&path, format, None).unwrap();
        }
        assert_eq!(names(&path.join("tensorboard")).len(), 1);
        assert!(first[0].parent().unwrap().ends_with("run/tensorboard"));

        // Opening a pipe would wait for its reader.
        #[cfg(unix)]
        {
            let steps = path.join("csv/steps.csv");
            fs::remove_file(&steps).unwrap();
            let made = std::process::Command::new("mkfifo").arg(&steps).status();
            assert!(made.unwrap().success());
            export(&path, Format::Csv, None).unwrap();
            assert!(steps.is_file());
        }

        // Other files are kept, and nothing is written beside them.
        let notes = path.join("csv/notes.txt");
        fs::write(&notes, "precious").unwrap();
        let before = fs::read(path.join("csv/steps.csv")).unwrap();
        assert_snapshot!(text(export(&path, Format::Csv, None).unwrap_err()), @"DIR/run/csv/notes.txt exists, and lapwing did not make it: choose another place with --out");
        assert_eq!(fs::read(path.join("csv/steps.csv")).unwrap(), before);
        let mine = dir.path().join("mine");
        fs::create_dir(&mine).unwrap();
        fs::write(mine.join("steps.csv"), "precious").unwrap();
        for format in [Format::TensorBoard, Format::Csv] {
            let error = export(&path, format, Some(&mine)).unwrap_err();
            assert_eq!(
                text(error),
                "DIR/mine exists and is not empty: choose another place with --out"
            );
        }
        assert_eq!(fs::read(mine.join("steps.csv")).unwrap(), b"precious");
        assert_eq!(names(&mine), ["steps.csv"]);
        let other = dir.path().join("other/place");
        assert_eq!(export(&path, Format::Csv, Some(&other)).unwrap().len(), 2);
    }
}
