//! `lapwing report`: an HTML report of runs.

use std::io::Write;

use anyhow::Result;
use lapwing_lab::report;

use crate::{args, out};

pub fn report(arguments: &args::ReportArgs) -> Result<()> {
    let default = || report::default_path(&arguments.runs);
    let page = arguments.out.clone().unwrap_or_else(default);
    report::write(&arguments.runs, &page)?;
    writeln!(out::shown(), "The report is in {}", page.display())?;
    Ok(())
}
