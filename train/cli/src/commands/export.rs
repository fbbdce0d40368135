//! `lapwing export`: the metrics of a run for other programs.

use std::io::Write;

use anyhow::Result;
use lapwing_lab::export::{Format, export as write};

use crate::args;
use crate::out;

/// Writes the files, and says where they are.
pub fn export(arguments: &args::Export) -> Result<()> {
    let format = match arguments.format {
        args::ExportFormat::Tensorboard => Format::TensorBoard,
        args::ExportFormat::Csv => Format::Csv,
    };
    for path in write(&arguments.run, format, arguments.out.as_deref())? {
        writeln!(out::shown(), "{}", path.display())?;
    }
    Ok(())
}
