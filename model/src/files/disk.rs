//! Reads text files with a size limit, and writes files and directories atomically.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use crate::ModelError;

/// Returns the text of a plain file of at most `largest` bytes.
///
/// # Errors
/// The file is not a plain file, is larger, or cannot be read. The error names it.
pub fn read_text(path: &Path, largest: u64) -> Result<String, ModelError> {
    let file = open(path)?;
    let mut text = String::new();
    let read = file.take(largest + 1).read_to_string(&mut text);
    read.map_err(|e| ModelError::unreadable(path, e))?;
    if text.len() as u64 > largest {
        let problem = format!("larger than {} KiB", largest >> 10);
        return Err(ModelError::unreadable(path, problem));
    }
    Ok(text)
}

/// Opens a plain file. Opening a pipe could wait forever.
pub(crate) fn open(path: &Path) -> Result<File, ModelError> {
    let wrong = |e: std::io::Error| ModelError::unreadable(path, e);
    match fs::metadata(path).map_err(wrong)?.is_file() {
        true => File::open(path).map_err(wrong),
        false => Err(ModelError::unreadable(path, "not a file")),
    }
}

/// Returns whether a file exists. A broken link counts, so that it becomes an error instead of being ignored.
pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Writes a file under a temporary name, syncs it and renames it. Readers see the old bytes or the new ones, even if the machine
/// stops in between. The folder must exist.
///
/// # Errors
/// The file cannot be written. An older file then stays.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    let failed = |e: std::io::Error| ModelError::unwritable(path, e);
    let folder = parent(path);
    let mut temporary = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    temporary.write_all(bytes).map_err(failed)?;
    temporary.as_file().sync_all().map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // It is created for its owner only.
        let everybody = fs::Permissions::from_mode(0o644);
        temporary
            .as_file()
            .set_permissions(everybody)
            .map_err(failed)?;
    }
    temporary.persist(path).map_err(|e| failed(e.error))?;
    // The folder holds the names of its files.
    #[cfg(unix)]
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed)?;
    Ok(())
}

/// Creates the folder of a file, if there is none, and then [writes the file](write_atomically).
///
/// # Errors
/// The folder or the file cannot be written.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    fs::create_dir_all(parent(path)).map_err(|e| ModelError::unwritable(path, e))?;
    write_atomically(path, bytes)
}

/// Returns the folder of a path.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Fills a directory under a temporary name and renames it. An older directory of that name is replaced. The parent must exist: a
/// run directory that was deleted must not reappear half full.
pub(crate) fn write_directory_atomically(
    dir: &Path,
    fill: impl FnOnce(&Path) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let failed = |e: std::io::Error| ModelError::unwritable(dir, e);
    let parent = parent(dir);
    // A hidden folder beside the target, removed when this function returns.
    let temporary = tempfile::Builder::new()
        .prefix(".lapwing-")
        .tempdir_in(parent)
        .map_err(failed)?;
    let (new, old) = (temporary.path().join("new"), temporary.path().join("old"));
    fs::create_dir(&new).map_err(failed)?;
    fill(&new).map_err(|e| e.moved(&new, dir))?;
    if dir.exists() {
        fs::rename(dir, &old).map_err(failed)?;
    }
    if let Err(e) = fs::rename(&new, dir) {
        if old.exists() {
            fs::rename(&old, dir).map_err(failed)?;
        }
        return Err(failed(e));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_replaces_an_older_one_and_leaves_no_temporary_files() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("adapter");
        write_directory_atomically(&dir, |new| {
            write_atomically(&new.join("a"), b"old")?;
            write_atomically(&new.join("b"), b"old")
        })
        .unwrap();
        write_directory_atomically(&dir, |new| write_atomically(&new.join("a"), b"new")).unwrap();
        // A failure leaves the old one.
        let failure = |new: &Path| Err(ModelError::file(new, "no"));
        assert!(write_directory_atomically(&dir, failure).is_err());
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"new");
        assert!(!dir.join("b").exists());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
