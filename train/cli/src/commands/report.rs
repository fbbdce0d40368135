//! `lapwing report`: an HTML report of runs or sweeps.

use std::io::Write;

use anyhow::{Result, bail};
use lapwing_lab::report;

use crate::{args, out};

pub fn report(arguments: &args::ReportArgs) -> Result<()> {
    let default = || report::default_path(&arguments.runs);
    let page = arguments.out.clone().unwrap_or_else(default);
    let notes = report::write(&arguments.runs, &page)?;
    writeln!(out::shown(), "The report is in {}", page.display())?;
    if !notes.is_empty() {
        let (page, notes) = (page.display(), notes.join(" "));
        bail!(
            "{page} is incomplete: {notes} Restore the file and repeat the command, or use the rest"
        );
    }
    Ok(())
}
