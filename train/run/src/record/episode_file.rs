//! Files of episodes kept for imitation: a [`KeptEpisode`] in each line, with the conversation before each reply.

use std::path::Path;

use super::jsonl::LARGEST;
use super::{NewFile, RecordError, read_error};
use lapwing_play::sample::KeptEpisode;

/// Writes them.
///
/// # Errors
/// If the file cannot be written.
pub fn write(file: &NewFile, samples: &[KeptEpisode]) -> Result<(), RecordError> {
    let line = |sample| serde_json::to_string(sample).expect("episodes are plain values") + "\n";
    file.write(&samples.iter().map(line).collect::<String>())
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
