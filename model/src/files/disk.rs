//! Reading small text files with a limit, and writing so that nothing is ever left half-written.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use serde_json::Value;

use crate::ModelError;

/// The text of a plain file; one larger than so many bytes is not what it should be.
///
/// # Errors
/// If it is no plain file, is larger, or cannot be read; the error names it.
pub fn read_text(path: &Path, largest: u64) -> Result<String, ModelError> {
    let file = open(path)?;
    let mut text = String::new();
    let read = file.take(largest + 1).read_to_string(&mut text);
    read.map_err(|e| ModelError::file(path, e))?;
    if text.len() as u64 > largest {
        return Err(ModelError::file(
            path,
            format!("larger than {} KiB", largest >> 10),
        ));
    }
    Ok(text)
}

/// Opens a plain file. A pipe of that name would be waited for without end.
pub(crate) fn open(path: &Path) -> Result<File, ModelError> {
    let wrong = |e: std::io::Error| ModelError::file(path, e);
    match fs::metadata(path).map_err(wrong)?.is_file() {
        true => File::open(path).map_err(wrong),
        false => Err(ModelError::file(path, "not a file")),
    }
}

/// A JSON file.
pub(crate) fn read_json(path: &Path, largest: u64) -> Result<Value, ModelError> {
    let text = read_text(path, largest)?;
    serde_json::from_str(&text).map_err(|e| ModelError::file(path, format!("not valid JSON: {e}")))
}

/// Whether there is such a file; a broken link counts, so that it is complained about and not passed over.
pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Writes a file aside, syncs it and renames it into place: readers see the old bytes or the new ones, never a part, even
/// if the machine stops in between. The folder must be there.
///
/// # Errors
/// If it cannot be written; what was there before stays.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    let failed = |e: std::io::Error| ModelError::unwritable(path, e);
    let folder = parent(path);
    let mut aside = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    aside.write_all(bytes).map_err(failed)?;
    aside.as_file().sync_all().map_err(failed)?;
    make_readable(aside.as_file()).map_err(failed)?;
    aside.persist(path).map_err(|e| failed(e.error))?;
    sync_names(folder).map_err(failed)
}

/// The same, in a folder that is made if it is not there.
///
/// # Errors
/// As [`write_atomically`].
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), ModelError> {
    fs::create_dir_all(parent(path)).map_err(|e| ModelError::unwritable(path, e))?;
    write_atomically(path, bytes)
}

/// A name is a part of its folder, which is synced by itself.
#[cfg(unix)]
fn sync_names(folder: &Path) -> std::io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_names(_: &Path) -> std::io::Result<()> {
    Ok(())
}

/// The folder that holds a file or a folder. None is made: one that was taken away while its owner worked must not appear
/// again, half full.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Fills a whole directory aside and renames it into place. An older directory of that name is replaced.
pub(crate) fn write_directory_aside(
    dir: &Path,
    fill: impl FnOnce(&Path) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let failed = |e: std::io::Error| ModelError::unwritable(dir, e);
    let parent = parent(dir);
    // Both live in one hidden folder beside the target, removed on every way out of this function.
    let aside = tempfile::Builder::new()
        .prefix(".lapwing-")
        .tempdir_in(parent)
        .map_err(failed)?;
    let (new, old) = (aside.path().join("new"), aside.path().join("old"));
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

/// Temporary files are made for their owner alone; what we leave behind is for everybody to read.
#[cfg(unix)]
fn make_readable(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_readable(_: &File) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_replaces_an_older_one_and_leaves_nothing_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("adapter");
        write_directory_aside(&dir, |new| {
            write_atomically(&new.join("a"), b"old")?;
            write_atomically(&new.join("b"), b"old")
        })
        .unwrap();
        write_directory_aside(&dir, |new| write_atomically(&new.join("a"), b"new")).unwrap();
        // What fails leaves the old one.
        let failure = |new: &Path| Err(ModelError::file(new, "no"));
        assert!(write_directory_aside(&dir, failure).is_err());
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
