//! Files of episodes kept for imitation: a [`KeptEpisode`] in each line, with the conversation before each reply.

use std::io::Write;
use std::path::Path;

use super::jsonl::LARGEST;
use super::{RecordError, exists, read_error, write_error};
use lapwing_play::sample::KeptEpisode;

/// Fails early on a file that [`write()`] would refuse. Changes nothing.
///
/// # Errors
/// If the file exists.
pub fn check_free(path: &Path) -> Result<(), RecordError> {
    match path.symlink_metadata() {
        Ok(_) => Err(exists(path, "--keep")),
        Err(_) => Ok(()),
    }
}

/// Writes a new file, completely or not at all.
///
/// # Errors
/// If it exists or cannot be written.
pub fn write(path: &Path, samples: &[KeptEpisode]) -> Result<(), RecordError> {
    check_free(path)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    #[cfg_attr(not(unix), expect(unused_mut))]
    let mut builder = tempfile::Builder::new();
    // A temporary file is private to its user; the new file gets the usual permissions.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut aside = builder.tempfile_in(folder).map_err(write_error(path))?;
    for sample in samples {
        let line = serde_json::to_string(sample).expect("episodes are plain values");
        writeln!(aside, "{line}").map_err(write_error(path))?;
    }
    aside.as_file().sync_data().map_err(write_error(path))?;
    match aside.persist_noclobber(path) {
        Ok(_) => Ok(()),
        // Another process created the file first.
        Err(e) if e.error.kind() == std::io::ErrorKind::AlreadyExists => check_free(path),
        Err(e) => Err(write_error(path)(e.error)),
    }
}

/// Reads such a file, or the `episodes.jsonl` of a run.
///
/// # Errors
/// If it cannot be read, or a line is not an episode; the error names it.
pub fn read(path: &Path) -> Result<Vec<KeptEpisode>, RecordError> {
    let wrong = |reason: String| read_error(path, reason);
    let text = lapwing_model::read_text(path, LARGEST);
    let text = text.map_err(RecordError::Unreadable)?;
    let sample = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| wrong(format!("line {} is not an episode: {error}", number + 1)))
    };
    text.lines().enumerate().map(sample).collect()
}
