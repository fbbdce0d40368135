//! Report pages: one HTML file about runs, with all of its data, that needs no network.
//!
//! `data` reads the runs; `page.html`, `page.css` and `page.js` show them. Untrusted input (replies of models, names of
//! files) is passed as JSON, which the script inserts as text, never as markup.

mod data;
mod episodes;
mod lines;

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use data::{ReportData, ReportRun};
use lapwing_model::open_regular;
use lapwing_train::Error;
use lapwing_train::record::RecordError;

const HTML: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// Identifies a report.
const GENERATOR: &str = r#"<meta name="generator" content="lapwing report">"#;

/// Returns the default path of the report: in the directory of a single run or sweep, or in the current directory.
pub fn default_path(runs: &[PathBuf]) -> PathBuf {
    match runs {
        [run] => run.join("report.html"),
        _ => PathBuf::from("lapwing-report.html"),
    }
}

/// Writes the report of these runs, and of the runs below these directories, to a file. An existing file is replaced only if it is a
/// report. Runs may be unfinished. Returns what damaged or missing files leave out, which the page shows, too.
///
/// # Errors
/// If a directory contains no run, a config cannot be read, the file exists and is no report, or it cannot be written.
pub fn write(runs: &[PathBuf], out: &Path) -> Result<Vec<String>, Error> {
    // Before reading, which may take a while.
    check_free(out)?;
    let report = ReportData::read(runs)?;
    lapwing_model::write_file(out, page(&report).as_bytes())?;
    let notes_of = |run: ReportRun| {
        run.notes
            .into_iter()
            .map(move |note| (run.name.clone(), note))
    };
    let notes = report.runs.into_iter().flat_map(notes_of);
    Ok(notes.map(|(run, note)| format!("{run}: {note}")).collect())
}

/// Returns the data of a page about these runs, as JSON.
///
/// # Errors
/// If a directory contains no run, or a config cannot be read.
pub fn data(runs: &[PathBuf]) -> Result<String, Error> {
    let report = ReportData::read(runs)?;
    Ok(serde_json::to_string(&report).expect("a report is plain values"))
}

/// Checks that the file is a report or does not exist.
fn check_free(out: &Path) -> Result<(), RecordError> {
    let is_ours = || {
        let mut head = Vec::new();
        let read = open_regular(out, File::options().read(true));
        let read = read.and_then(|file| file.take(1024).read_to_end(&mut head));
        read.is_ok() && String::from_utf8_lossy(&head).contains(GENERATOR)
    };
    match out.symlink_metadata() {
        Ok(found) if found.is_dir() || !is_ours() => Err(RecordError::Foreign(out.to_owned())),
        _ => Ok(()),
    }
}

fn page(report: &ReportData) -> String {
    let data = serde_json::to_string(report).expect("a report is plain values");
    // In a script element only `<` can start an end tag or a comment.
    let data = data.replace('<', "\\u003c");
    let title = report.title.replace('&', "&amp;").replace('<', "&lt;");
    // Inserted text is not searched for placeholders.
    let pieces = HTML.split("@@").map(|piece| match piece {
        "TITLE" => Cow::from(&title),
        "CSS" => Cow::from(CSS),
        "DATA" => Cow::from(&data),
        "JS" => Cow::from(JS),
        html => Cow::from(html),
    });
    pieces.collect()
}

#[cfg(test)]
mod tests;
