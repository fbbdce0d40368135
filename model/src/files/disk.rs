//! Reads files with a size limit, and writes files and directories atomically. Paths may lead to [memory](super::memory).

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, Write};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Mmap, MmapOptions};

use super::memory;
use crate::ModelError;

/// Most bytes of a file beside the weights. The largest tokenizers have 35 MB.
pub(crate) const MOST_BESIDE: u64 = 256 << 20;

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
    let too_large = || io::Error::other(format!("larger than {} KiB", largest >> 10));
    if memory::holds(path) {
        let bytes = memory::read(path)?;
        let fits = bytes.len() as u64 <= largest;
        return fits.then(|| bytes.to_vec()).ok_or_else(too_large);
    }
    let file = open_regular(path, File::options().read(true))?;
    let (length, mut bytes) = (file.metadata()?.len(), Vec::new());
    // Some files of the system have no length, so the bytes count, too.
    if length <= largest
        && file
            .take(largest.saturating_add(1))
            .read_to_end(&mut bytes)? as u64
            <= largest
    {
        return Ok(bytes);
    }
    Err(too_large())
}

/// The bytes of a file, mapped or in memory.
#[derive(Debug)]
pub(crate) enum FileBytes {
    Mapped(Mmap),
    Memory(Arc<[u8]>),
}

impl FileBytes {
    /// Returns the memory of mapped pages to the system, where it can be told so.
    #[cfg_attr(not(unix), allow(unused_variables))]
    pub(crate) fn release(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        if let FileBytes::Mapped(map) = self {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the file is only read, so released pages are read from it again.
            let _ = unsafe { map.unchecked_advise_range(advice, bytes.start, bytes.len()) };
        }
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(map) => map,
            FileBytes::Memory(bytes) => bytes,
        }
    }
}

/// Maps at most the first `most` bytes of a file. Returns them and the length of the file.
pub(crate) fn map(path: &Path, most: u64) -> io::Result<(FileBytes, u64)> {
    if memory::holds(path) {
        let bytes = memory::read(path)?;
        let length = bytes.len() as u64;
        return Ok((FileBytes::Memory(bytes), length));
    }
    let file = open_regular(path, File::options().read(true))?;
    let length = file.metadata()?.len();
    // SAFETY: the map is only read. If another process truncates the file meanwhile, reading it ends this process with a
    // signal. That is accepted, because copying gigabytes would be worse.
    let map = unsafe {
        MmapOptions::new()
            .len(length.min(most) as usize)
            .map(&file)?
    };
    Ok((FileBytes::Mapped(map), length))
}

/// Reads a file from any position.
pub trait FileReader: BufRead + Seek {}

impl<T: BufRead + Seek> FileReader for T {}

/// Opens a regular file for reading in parts.
///
/// # Errors
/// As [`open_regular`].
pub fn reader(path: &Path) -> io::Result<Box<dyn FileReader>> {
    if memory::holds(path) {
        return Ok(Box::new(Cursor::new(memory::read(path)?)));
    }
    let file = open_regular(path, File::options().read(true))?;
    Ok(Box::new(BufReader::new(file)))
}

/// Returns whether this is a file.
pub fn is_file(path: &Path) -> bool {
    match memory::holds(path) {
        true => memory::read(path).is_ok(),
        false => path.is_file(),
    }
}

/// Returns whether this is a directory. In memory, a directory has files.
pub fn is_dir(path: &Path) -> bool {
    match memory::holds(path) {
        true => !memory::below(path).is_empty(),
        false => path.is_dir(),
    }
}

/// Returns the length of a file in bytes.
///
/// # Errors
/// It cannot be read.
pub(crate) fn length(path: &Path) -> io::Result<u64> {
    match memory::holds(path) {
        true => Ok(memory::read(path)?.len() as u64),
        false => Ok(path.metadata()?.len()),
    }
}

/// Returns the absolute path without links.
///
/// # Errors
/// It does not exist.
pub(crate) fn canonical(path: &Path) -> io::Result<PathBuf> {
    match memory::holds(path) {
        true => Ok(path.to_owned()),
        false => path.canonicalize(),
    }
}

/// Returns the paths of the files and directories in a directory. In memory, those of the files only.
///
/// # Errors
/// It cannot be read.
pub fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match memory::holds(dir) {
        true => Ok(memory::below(dir)),
        false => fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect(),
    }
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
    match memory::holds(path) {
        true => is_file(path) || is_dir(path),
        false => path.symlink_metadata().is_ok(),
    }
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
    if memory::holds(path) {
        let mut all = Vec::new();
        fill(&mut |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        memory::write(path, &all);
        return Ok(());
    }
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
    if memory::holds(path) {
        return write_atomically(path, bytes);
    }
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
    if memory::holds(dir) {
        memory::clear_memory(dir);
        return fill(dir);
    }
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
    fn files_in_memory_are_read_written_and_listed_like_those_on_a_disk() {
        let dir = Path::new(memory::MEMORY).join("disk-test");
        let file = |name: &str| dir.join(name);
        assert!(!is_dir(&dir) && !exists(&file("a")));
        let missing = read_file(&file("a"), 9).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        write_file(&file("a"), b"one").unwrap();
        write_in_parts(&file("b"), |write| {
            write(b"tw")?;
            write(b"o")
        })
        .unwrap();
        assert_eq!(entries(&dir).unwrap(), [file("a"), file("b")]);
        assert_eq!(read_text(&file("b"), 3).unwrap(), "two");
        assert!(read_text(&file("b"), 2).is_err());
        let (bytes, length) = map(&file("a"), 2).unwrap();
        assert_eq!((&*bytes, length), (&b"one"[..], 3));
        // Another directory whose name begins in the same way.
        let beside = Path::new(memory::MEMORY).join("disk-test-2");
        write_file(&beside.join("c"), b"three").unwrap();
        write_directory_atomically(&dir, |new| write_atomically(&new.join("d"), b"four")).unwrap();
        assert_eq!(entries(&dir).unwrap(), [file("d")]);
        assert!(is_dir(&dir) && is_file(&file("d")) && is_file(&beside.join("c")));
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
