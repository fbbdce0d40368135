//! Reads files with a size limit, and writes files and directories atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use crate::ModelError;

/// How the names of temporary files and directories begin.
const TEMPORARY: &str = ".lapwing-";

/// Returns the text of a regular file of at most `largest` bytes.
///
/// # Errors
/// The file is not a regular file, is larger, is not UTF-8, or cannot be read. The error names it.
pub fn read_text(path: &Path, largest: u64) -> Result<String, ModelError> {
    let wrong = |e: io::Error| ModelError::unreadable(path, e);
    let bytes = read_file(path, largest).map_err(wrong)?;
    String::from_utf8(bytes).map_err(|_| ModelError::unreadable(path, "not UTF-8 text"))
}

/// Returns the bytes of a regular file of at most `largest` bytes.
///
/// # Errors
/// The file is not a regular file, is larger, or cannot be read.
pub fn read_file(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path, File::options().read(true))?;
    let (length, mut bytes) = (file.metadata()?.len(), Vec::new());
    // Some files of the system have no length, so the bytes count, too.
    if length <= largest && file.take(largest + 1).read_to_end(&mut bytes)? as u64 <= largest {
        return Ok(bytes);
    }
    Err(io::Error::other(format!(
        "larger than {} KiB",
        largest >> 10
    )))
}

/// Opens a file, which must be a regular one if it exists. Opening a pipe could wait forever, and a device may be endless.
///
/// # Errors
/// It is a directory, a pipe, a device or a socket, or it cannot be opened.
pub fn open_regular(path: &Path, options: &OpenOptions) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::other("not a file")),
        _ => options.open(path),
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
    write_in_parts(path, |write| write(bytes))
}

/// Does the same with the bytes that `fill` passes to its argument.
pub(crate) fn write_in_parts(
    path: &Path,
    fill: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), ModelError>) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let failed = |e: io::Error| ModelError::unwritable(path, e);
    let folder = parent(path);
    let temporary = tempfile::NamedTempFile::with_prefix_in(TEMPORARY, folder);
    let mut temporary = temporary.map_err(failed)?;
    fill(&mut |bytes| temporary.write_all(bytes).map_err(failed))?;
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
    let failed = |e: io::Error| ModelError::unwritable(dir, e);
    let parent = parent(dir);
    // A hidden folder beside the target, removed when this function returns.
    let temporary = tempfile::TempDir::with_prefix_in(TEMPORARY, parent).map_err(failed)?;
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

/// Removes the temporary files and directories that killed writers left in a folder. No other process may write there.
pub fn remove_temporary(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
            // One that cannot be removed does no harm.
            let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
        }
    }
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

    #[cfg(unix)]
    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x");
        fs::write(&path, [7; 3000]).unwrap();
        assert_eq!(read_file(&path, 3000).unwrap(), [7; 3000]);
        let refused = |path: &Path| read_file(path, 2048).unwrap_err().to_string();
        assert_eq!(refused(&path), "larger than 2 KiB");
        let (pipe, endless) = (home.path().join("pipe"), home.path().join("endless"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
        for path in [&pipe, &endless, home.path()] {
            assert_eq!(refused(path), "not a file");
            assert!(open_regular(path, File::options().append(true)).is_err());
        }
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
