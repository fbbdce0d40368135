//! Files in memory, below the path [`MEMORY`]: those of the built-in model, and in a browser, which has no disk, all files.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// The first component of the paths of files in memory. Reading and writing them needs no disk.
pub const MEMORY: &str = "<memory>";

static FILES: Mutex<BTreeMap<PathBuf, Arc<[u8]>>> = Mutex::new(BTreeMap::new());

fn files() -> MutexGuard<'static, BTreeMap<PathBuf, Arc<[u8]>>> {
    FILES.lock().expect("files in memory")
}

/// Returns whether a path leads to memory.
pub(super) fn holds(path: &Path) -> bool {
    path.starts_with(MEMORY)
}

pub(super) fn read(path: &Path) -> io::Result<Arc<[u8]>> {
    let found = files().get(path).cloned();
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

pub(super) fn write(path: &Path, bytes: &[u8]) {
    files().insert(path.to_owned(), bytes.into());
}

/// Returns the paths of the files in a directory and below it.
pub(super) fn below(dir: &Path) -> Vec<PathBuf> {
    let files = files();
    let from = files.range::<Path, _>((Bound::Excluded(dir), Bound::Unbounded));
    let below = from.take_while(|(path, _)| path.starts_with(dir));
    below.map(|(path, _)| path.clone()).collect()
}

/// Removes the files in a directory in memory.
pub fn clear_memory(dir: &Path) {
    files().retain(|path, _| !path.starts_with(dir));
}
