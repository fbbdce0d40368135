//! `lapwing report`: runs as a page to look at and to share.

use std::io::{self, Write};

use anyhow::Result;
use lapwing_train::record::report;

use crate::args;

/// Writes the page, and says where it is.
pub fn report(arguments: &args::Report) -> Result<()> {
    let out = match &arguments.out {
        Some(out) => out.clone(),
        None => report::default_path(&arguments.runs),
    };
    report::write(&arguments.runs, &out)?;
    writeln!(io::stdout(), "The report is in {}", out.display())?;
    Ok(())
}
