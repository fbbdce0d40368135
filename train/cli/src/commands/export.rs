//! `lapwing export`: the metrics of a run for other programs.

use std::io::Write;

use anyhow::Result;
use lapwing_lab::export::{self, Format};

use crate::{args, out};

pub fn export(arguments: &args::ExportArgs) -> Result<()> {
    let format = match arguments.format {
        args::ExportFormat::Tensorboard => Format::TensorBoard,
        args::ExportFormat::Csv => Format::Csv,
    };
    for path in export::export(&arguments.run, format, arguments.out.as_deref())? {
        writeln!(out::shown(), "{}", path.display())?;
    }
    Ok(())
}
