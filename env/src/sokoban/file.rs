//! Levels from a file in Boxoban's format.

use std::path::Path;
use std::sync::Arc;

use super::level::{LONGEST_LEVEL_SIDE, Level, Levels, MOST_BOXES, Position};

/// The largest file in bytes; Boxoban's have 0.1 MB.
const LARGEST_FILE: u64 = 16 << 20;

/// Reads all levels of a file. The error continues a sentence that begins with the option's name.
pub(super) fn read(path: &Path) -> Result<Levels, String> {
    let unreadable =
        |error: std::io::Error| format!("names {path:?}, which cannot be read: {error}");
    let about = std::fs::metadata(path).map_err(unreadable)?;
    if !about.is_file() {
        return Err(format!("names {path:?}, which is not a file"));
    }
    if about.len() > LARGEST_FILE {
        let megabytes = about.len() >> 20;
        return Err(format!(
            "names {path:?} of {megabytes} MB, but at most 16 MB can be read: split it"
        ));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    parse(&text).map_err(|problem| format!("names {path:?}, which has {problem}"))
}

/// Parses levels of `#` wall, `@` player, `$` box, `.` target, `*` box on a target, `+` player on a target, and spaces.
/// Levels are separated by empty lines or lines that begin with `;`, which name the next level.
pub(super) fn parse(text: &str) -> Result<Levels, String> {
    let mut levels = Vec::new();
    let mut name = String::from("the first level");
    let mut rows: Vec<(usize, &str)> = Vec::new();
    // An additional empty line ends the last level.
    for (number, line) in (1..).zip(text.lines().chain([""])) {
        let line = line.trim_end_matches('\r');
        let is_row = !line.trim().is_empty() && !line.starts_with(';');
        if is_row {
            rows.push((number, line));
            continue;
        }
        if !rows.is_empty() {
            levels.push(level(&name, &rows)?);
            rows.clear();
            name = format!("the level before line {number}");
        }
        if let Some(given) = line.strip_prefix(';') {
            let given: String = given.trim().chars().take(20).collect();
            name = format!("level {given:?}");
        }
    }
    if levels.is_empty() {
        return Err("no level".to_owned());
    }
    Ok(levels)
}

fn level(name: &str, rows: &[(usize, &str)]) -> Result<(Arc<Level>, Position), String> {
    let (first, row) = rows[0];
    let (width, height) = (row.chars().count(), rows.len());
    if width > LONGEST_LEVEL_SIDE || height > LONGEST_LEVEL_SIDE {
        return Err(format!(
            "{name} at line {first}, {width} wide and {height} high, but must be at most {LONGEST_LEVEL_SIDE} each way"
        ));
    }
    let mut level = Level {
        width,
        ..Level::default()
    };
    let (mut players, mut boxes) = (Vec::new(), Vec::new());
    for (number, row) in rows {
        let cells = row.chars().count();
        if cells != width {
            return Err(format!(
                "{cells} cells in line {number} of {name}, but must have {width} as in line {first}"
            ));
        }
        for sign in row.chars() {
            if !"# @$.*+".contains(sign) {
                return Err(format!(
                    "{sign:?} in line {number} of {name}, but must be of # @ $ . * + and spaces"
                ));
            }
            let cell = level.floor.len();
            level.floor.push(sign != '#');
            level.targets.push(".*+".contains(sign));
            if "@+".contains(sign) {
                players.push(cell);
            }
            if "$*".contains(sign) {
                boxes.push(cell);
            }
        }
    }
    let lines = format!("lines {first} to {}", first + height - 1);
    let targets = level.targets.iter().filter(|&&target| target).count();
    let [player] = players[..] else {
        return Err(format!(
            "{} players in {name} ({lines}), but must have one",
            players.len()
        ));
    };
    if boxes.is_empty() || boxes.len() > MOST_BOXES || boxes.len() != targets {
        return Err(format!(
            "{} boxes and {targets} targets in {name} ({lines}), but must have as many of both, from 1 to {MOST_BOXES}",
            boxes.len()
        ));
    }
    let state = Position::new(player, &boxes);
    if level.solved(&state) {
        return Err(format!(
            "all boxes on targets in {name} ({lines}), but must have something left to do"
        ));
    }
    Ok((Arc::new(level), state))
}
