//! Files of episodes kept for imitation: a [`KeptEpisode`] in each line, with the conversation before each reply.

use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use super::error::unfit;
use super::jsonl::LARGEST;
use super::{RecordError, exists, read_error};
use lapwing_play::sample::KeptEpisode;

/// Creates the folder of a new file, and fails early if [`write()`] would fail.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn prepare(path: &Path) -> Result<(), RecordError> {
    if path.symlink_metadata().is_ok() {
        return Err(exists(path, "--keep"));
    }
    std::fs::create_dir_all(folder(path)).map_err(unwritable(path))?;
    aside(path).map(drop)
}

/// Writes a new file in an existing folder, completely or not at all.
///
/// # Errors
/// If it exists or cannot be written.
pub fn write(path: &Path, samples: &[KeptEpisode]) -> Result<(), RecordError> {
    let mut aside = aside(path)?;
    for sample in samples {
        let line = serde_json::to_string(sample).expect("episodes are plain values");
        writeln!(aside, "{line}").map_err(unwritable(path))?;
    }
    aside.as_file().sync_data().map_err(unwritable(path))?;
    match aside.persist_noclobber(path) {
        Ok(_) => Ok(()),
        Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => Err(exists(path, "--keep")),
        Err(e) => Err(unwritable(path)(e.error)),
    }
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    folder.unwrap_or(Path::new("."))
}

/// Creates a temporary file in the folder of `path`.
fn aside(path: &Path) -> Result<NamedTempFile, RecordError> {
    #[cfg_attr(not(unix), expect(unused_mut))]
    let mut builder = tempfile::Builder::new();
    // A temporary file is private to its user; the new file gets the usual permissions.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder(path)).map_err(unwritable(path))
}

fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> RecordError + '_ {
    move |error| {
        let reason = match error.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                "a part of its path is a file".to_owned()
            }
            _ => error.to_string(),
        };
        let problem = format!("cannot be written: {reason}: choose another place with --keep");
        unfit(path, &problem)
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
