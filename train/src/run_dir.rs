//! The directory of a run: its config, one line a step, and the adapter. Nothing in it is ever half-written.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use crate::Config;

/// Something that could not be kept.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RunError {
    /// The directory has files in it.
    #[error("{} exists and is not empty: choose another directory with --out, or remove it", .path.display())]
    Occupied {
        /// The directory.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot write {}: {reason}{}", .path.display(), cure(.reason))]
    Write {
        /// What could not be written.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// A measured number is infinite or not a number; JSON knows neither, and neither means anything good.
    #[error(
        "step {step}: `{metric}` is not a finite number: training has diverged; try a smaller train.lr"
    )]
    NotFinite {
        /// The training step.
        step: usize,
        /// The metric.
        metric: String,
    },
}

/// What to do about the errors that have a cure.
fn cure(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some space, or choose another place with --out"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose another place with --out"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a part of its path is a file: choose another place with --out"
        }
        _ => "",
    }
}

/// The error of a write to this path.
pub(crate) fn write_error(path: &Path) -> impl FnOnce(io::Error) -> RunError + '_ {
    move |reason| RunError::Write {
        path: path.to_owned(),
        reason,
    }
}

/// A run directory, open for writing.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    metrics: File,
}

impl RunDir {
    /// Where a run will be: in `out`, or in `runs/NAME-SEED`, numbered on if that exists. Touches nothing.
    ///
    /// # Errors
    /// If `out` holds files already.
    pub fn place(out: Option<&Path>, config: &Config) -> Result<PathBuf, RunError> {
        let Some(path) = out else {
            return Ok(free_name(
                &Path::new("runs").join(format!("{}-{}", config.name, config.train.seed)),
            ));
        };
        let is_occupied = path.is_dir()
            && fs::read_dir(path)
                .map_err(write_error(path))?
                .next()
                .is_some();
        if is_occupied {
            Err(RunError::Occupied {
                path: path.to_owned(),
            })
        } else {
            Ok(path.to_owned())
        }
    }

    /// Makes the directory, which must be new or empty, and writes the config.
    ///
    /// # Errors
    /// If the directory holds files already, or cannot be written; then nothing new is left behind.
    pub fn create(path: &Path, config: &Config) -> Result<RunDir, RunError> {
        let path = RunDir::place(Some(path), config)?;
        let existed = path.is_dir();
        fs::create_dir_all(&path).map_err(write_error(&path))?;
        RunDir::fill(&path, config).inspect_err(|_| {
            // What could not be finished is removed; if that fails too, the first error is the one to tell.
            let _ = if existed {
                empty(&path)
            } else {
                fs::remove_dir_all(&path)
            };
        })
    }

    fn fill(path: &Path, config: &Config) -> Result<RunDir, RunError> {
        let file = path.join("config.toml");
        fs::write(&file, config.to_toml()).map_err(write_error(&file))?;
        let file = path.join("metrics.jsonl");
        let metrics = File::create_new(&file).map_err(write_error(&file))?;
        Ok(RunDir {
            path: path.to_owned(),
            metrics,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the adapter is, once it is saved.
    pub fn adapter(&self) -> PathBuf {
        self.path.join("adapter")
    }

    /// Appends one line to `metrics.jsonl`, whole or not at all.
    ///
    /// # Errors
    /// If a number in it is not finite, or the line cannot be written.
    pub fn log(&mut self, step: usize, record: &impl Serialize) -> Result<(), RunError> {
        let line = json_line(step, record)?;
        let file = self.path.join("metrics.jsonl");
        let before = self.metrics.metadata().map_err(write_error(&file))?.len();
        self.metrics.write_all(line.as_bytes()).map_err(|error| {
            // Cuts off the part of the line that did fit.
            let _ = self.metrics.set_len(before);
            write_error(&file)(error)
        })
    }
}

/// The first of NAME, NAME-2, NAME-3... that is free.
fn free_name(name: &Path) -> PathBuf {
    let numbered = |n: usize| PathBuf::from(format!("{}-{n}", name.display()));
    std::iter::once(name.to_owned())
        .chain((2..).map(numbered))
        .find(|path| !path.exists())
        .expect("numbers do not end")
}

fn empty(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}

/// The record as one line of JSON; serde_json writes what is not finite as null, and no metric is null on purpose.
fn json_line(step: usize, record: &impl Serialize) -> Result<String, RunError> {
    let value = serde_json::to_value(record).expect("metrics are plain values");
    match null_in(&value, "") {
        Some(metric) => Err(RunError::NotFinite { step, metric }),
        None => Ok(format!("{value}\n")),
    }
}

/// The dotted name of the first null.
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
    use std::collections::BTreeMap;

    use insta::assert_snapshot;

    use super::*;

    fn config() -> Config {
        Config::load("frozen-lake", &[]).unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(path)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    /// The error, with the temporary directory left out.
    fn told(error: &RunError, dir: &Path) -> String {
        error.to_string().replace(dir.to_str().unwrap(), "DIR")
    }

    #[test]
    fn the_config_in_a_run_directory_makes_the_same_run() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(&dir.path().join("a/b"), &config()).unwrap();
        assert_eq!(names(run.path()), ["config.toml", "metrics.jsonl"]);
        let written = run.path().join("config.toml");
        assert_eq!(
            Config::load(written.to_str().unwrap(), &[]).unwrap(),
            config()
        );
    }

    #[test]
    fn a_directory_with_files_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        RunDir::create(dir.path(), &config()).unwrap();
        fs::write(dir.path().join("metrics.jsonl"), "precious").unwrap();
        let error = RunDir::create(dir.path(), &config()).unwrap_err();
        assert_snapshot!(told(&error, dir.path()), @"DIR exists and is not empty: choose another directory with --out, or remove it");
        assert_eq!(
            fs::read_to_string(dir.path().join("metrics.jsonl")).unwrap(),
            "precious"
        );
    }

    #[test]
    fn the_default_name_counts_on() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("frozen-lake-1");
        for expected in ["frozen-lake-1", "frozen-lake-1-2", "frozen-lake-1-3"] {
            let free = free_name(&name);
            assert_eq!(free.file_name().unwrap(), expected);
            fs::create_dir(free).unwrap();
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = RunDir::create(&dir.path().join("file/run"), &config()).unwrap_err();
        assert!(matches!(error, RunError::Write { .. }));
        #[cfg(unix)]
        assert_snapshot!(told(&error, dir.path()), @"cannot write DIR/file/run: Not a directory (os error 20); a part of its path is a file: choose another place with --out");
    }

    /// Every write to this device finds the disk full.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_named() {
        let metrics = File::options().write(true).open("/dev/full").unwrap();
        let mut run = RunDir {
            path: PathBuf::from("DIR"),
            metrics,
        };
        let error = run.log(1, &BTreeMap::from([("step", 1)])).unwrap_err();
        assert_snapshot!(told(&error, Path::new("nowhere")), @"cannot write DIR/metrics.jsonl: No space left on device (os error 28); free some space, or choose another place with --out");
    }

    #[test]
    fn what_is_not_finite_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut run = RunDir::create(dir.path(), &config()).unwrap();
        run.log(1, &BTreeMap::from([("kl", 0.5)])).unwrap();
        let error = run.log(2, &BTreeMap::from([("kl", f64::NAN)])).unwrap_err();
        assert_snapshot!(error, @"step 2: `kl` is not a finite number: training has diverged; try a smaller train.lr");
        let error = run
            .log(
                3,
                &BTreeMap::from([("eval", BTreeMap::from([("return_mean", f64::INFINITY)]))]),
            )
            .unwrap_err();
        assert_snapshot!(error, @"step 3: `eval.return_mean` is not a finite number: training has diverged; try a smaller train.lr");
        assert_eq!(
            fs::read_to_string(dir.path().join("metrics.jsonl")).unwrap(),
            "{\"kl\":0.5}\n"
        );
    }
}
