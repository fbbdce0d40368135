//! The directory of a run: its config, one line a record, and the adapter. Nothing in it is ever half-written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::jsonl::Jsonl;
use super::{RecordError, write_error};
use crate::Config;

/// Where a run will be: in `out`, or in `runs/NAME-SEED`, numbered on if that exists. Touches nothing.
///
/// # Errors
/// If `out` holds files already.
pub fn place(out: Option<&Path>, config: &Config) -> Result<PathBuf, RecordError> {
    let Some(path) = out else {
        let name = format!("{}-{}", config.name, config.train.seed);
        return Ok(free_name(&Path::new("runs").join(name)));
    };
    let is_occupied = path.is_dir()
        && fs::read_dir(path)
            .map_err(write_error(path))?
            .next()
            .is_some();
    match is_occupied {
        true => Err(RecordError::Occupied {
            path: path.to_owned(),
        }),
        false => Ok(path.to_owned()),
    }
}

/// Makes the directory, which must be new or empty, with the config and the file for its records in it.
///
/// # Errors
/// If the directory holds files already, or cannot be written; then nothing new is left behind.
pub fn create(path: &Path, config: &Config) -> Result<Jsonl, RecordError> {
    let path = place(Some(path), config)?;
    let existed = path.is_dir();
    fs::create_dir_all(&path).map_err(write_error(&path))?;
    fill(&path, config).inspect_err(|_| {
        // What could not be finished is removed; if that fails too, the first error is the one to tell.
        let _ = if existed {
            empty(&path)
        } else {
            fs::remove_dir_all(&path)
        };
    })
}

/// Where the adapter is kept in a run's directory.
pub fn adapter(path: &Path) -> PathBuf {
    path.join("adapter")
}

fn fill(path: &Path, config: &Config) -> Result<Jsonl, RecordError> {
    let file = path.join("config.toml");
    fs::write(&file, config.to_toml()).map_err(write_error(&file))?;
    Jsonl::create(&path.join("metrics.jsonl"))
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

#[cfg(test)]
mod tests {
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
    fn told(error: &RecordError, dir: &Path) -> String {
        error.to_string().replace(dir.to_str().unwrap(), "DIR")
    }

    #[test]
    fn the_config_in_a_run_directory_makes_the_same_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        create(&path, &config()).unwrap();
        assert_eq!(names(&path), ["config.toml", "metrics.jsonl"]);
        let written = path.join("config.toml");
        assert_eq!(
            Config::load(written.to_str().unwrap(), &[]).unwrap(),
            config()
        );
    }

    #[test]
    fn a_directory_with_files_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        create(dir.path(), &config()).unwrap();
        fs::write(dir.path().join("metrics.jsonl"), "precious").unwrap();
        let error = create(dir.path(), &config()).unwrap_err();
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
        let error = create(&dir.path().join("file/run"), &config()).unwrap_err();
        assert!(matches!(error, RecordError::Write { .. }));
        #[cfg(unix)]
        assert_snapshot!(told(&error, dir.path()), @"cannot write DIR/file/run: Not a directory (os error 20); a part of its path is a file: choose another place with --out");
    }
}
