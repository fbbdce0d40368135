//! Reads files of lines, which may be damaged or still be written.

use std::io::{self, BufRead};
use std::path::Path;

/// Calls `line` with each complete line of a file and its position, without an unfinished last line. Returns the number
/// of lines for which `line` returns `None`.
pub(super) fn read_lines(
    path: &Path,
    mut line: impl FnMut(&[u8], u64) -> Option<()>,
) -> io::Result<usize> {
    let mut file = lapwing_model::reader(path)?;
    let (mut bytes, mut position, mut damaged) = (Vec::new(), 0, 0);
    while file.read_until(b'\n', &mut bytes)? > 0 {
        if bytes.ends_with(b"\n") && line(&bytes, position).is_none() {
            damaged += 1;
        }
        position += bytes.len() as u64;
        bytes.clear();
    }
    Ok(damaged)
}
