//! `lapwing report`: runs as a page to look at and to share.

use std::io::Write;

use anyhow::Result;
use lapwing_lab::report;

use crate::args;
use crate::out;

/// Writes the page, and says where it is.
pub fn report(arguments: &args::Report) -> Result<()> {
    let page = match &arguments.out {
        Some(out) => out.clone(),
        None => report::default_path(&arguments.runs),
    };
    report::write(&arguments.runs, &page)?;
    writeln!(out::shown(), "The report is in {}", page.display())?;
    Ok(())
}
