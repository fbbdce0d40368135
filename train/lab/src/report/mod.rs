//! A page about runs: one HTML file that holds all that it shows, to be read and shared without a network.
//!
//! `data` reads the runs; `page.html`, `page.css` and `page.js` show them. What strangers wrote (replies of models, names of
//! files) reaches the page as JSON only, which the script puts on it as text, never as markup.

mod data;
mod episodes;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use data::Page;
use lapwing_train::Error;
use lapwing_train::record::RecordError;

const HTML: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// What stands near the beginning of every report, and of no page of anybody else.
const MARK: &str = r#"<meta name="generator" content="lapwing report">"#;

/// Where the report of these runs is kept unless somebody says otherwise: in the directory of the one, or for several in the
/// current directory.
pub fn default_path(runs: &[PathBuf]) -> PathBuf {
    match runs {
        [run] => run.join("report.html"),
        _ => PathBuf::from("lapwing-report.html"),
    }
}

/// Writes the report of these runs to a file, which may be an earlier report, but nothing else. A run need not be over, and
/// lines that cannot be read are counted on the page.
///
/// # Errors
/// If one of them is no run or its config cannot be read; if the file is there and is no report, or cannot be written.
pub fn write(runs: &[PathBuf], out: &Path) -> Result<(), Error> {
    // First, since reading may take a while.
    check_free(out)?;
    let page = page(&Page::read(runs)?);
    Ok(lapwing_model::write_file(out, page.as_bytes())?)
}

/// Makes sure that a report may be written there.
///
/// # Errors
/// If there is something that is no report.
pub fn check_free(out: &Path) -> Result<(), RecordError> {
    let is_ours = || {
        let mut head = Vec::new();
        let read = File::open(out).and_then(|file| file.take(1024).read_to_end(&mut head));
        read.is_ok() && String::from_utf8_lossy(&head).contains(MARK)
    };
    match out.symlink_metadata() {
        Ok(found) if found.is_dir() || !is_ours() => Err(RecordError::Foreign(out.to_owned())),
        _ => Ok(()),
    }
}

/// The whole file.
fn page(page: &Page) -> String {
    let data = serde_json::to_string(page).expect("a page is plain values");
    // In the text of a script element nothing but `<` can end it or begin a comment.
    let data = data.replace('<', "\\u003c");
    let mut text = String::with_capacity(HTML.len() + CSS.len() + JS.len() + data.len());
    let mut rest = HTML;
    // From one place to the next, so that what is put in is not looked through again.
    while let Some((before, after)) = rest.split_once("@@") {
        let (name, after) = after.split_once("@@").expect("places are closed");
        text += before;
        match name {
            "TITLE" => text += &escaped(&page.title),
            "CSS" => text += CSS,
            "DATA" => text += &data,
            "JS" => text += JS,
            other => unreachable!("the template names {other}"),
        }
        rest = after;
    }
    text + rest
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests;
