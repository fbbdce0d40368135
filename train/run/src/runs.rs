//! The runs below a directory.

use std::fs;
use std::path::{Path, PathBuf};

use lapwing_model::is_file;

use crate::config::PathKind;

/// Returns what to give in place of a path that is not a run: the runs below it, if there are any.
pub(crate) fn wanted(path: &Path) -> String {
    let runs = runs_in(path);
    let mut names: Vec<_> = runs.iter().map(|run| run.to_string_lossy()).collect();
    if names.len() > 5 {
        names.truncate(5);
        names.push("...".into());
    }
    match (PathKind::of(path), &*names.join(", ")) {
        (PathKind::Model, _) => "it is a model, which is given with --model".to_owned(),
        (PathKind::Adapter, _) => "it is an adapter, which is given with --adapter".to_owned(),
        (_, "") => {
            "wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it"
                .to_owned()
        }
        (_, names) => format!("it holds {names}; give one of them"),
    }
}

/// Returns the runs in a directory: itself, if it is one, or those below it, such as the runs of a sweep, by name and
/// number.
pub fn runs_in(path: &Path) -> Vec<PathBuf> {
    fn find(path: &Path, levels: usize, runs: &mut Vec<PathBuf>) {
        if is_file(&path.join("config.toml")) {
            runs.push(path.to_owned());
        } else if levels > 0 {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.for_each(|entry| find(&entry.path(), levels - 1, runs));
        }
    }
    let mut runs = Vec::new();
    // The runs of a sweep are three levels below `sweeps`.
    find(path, 3, &mut runs);
    runs.sort_by_cached_key(|run| {
        let name = run.to_string_lossy().into_owned();
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        (stem.to_owned(), name.len(), name)
    });
    runs
}
