//! `lapwing export`: the metrics or the adapter of a run for other programs.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use lapwing_lab::export::{self, Format};
use lapwing_model::write_file;
use lapwing_train::record::directory;

use super::loaded_model::{InputError, open};
use crate::{args, out};

pub fn export(arguments: &args::ExportArgs) -> Result<()> {
    let metrics = |format| export::export(&arguments.run, format, arguments.out.as_deref());
    let paths = match arguments.format {
        args::ExportFormat::Tensorboard => metrics(Format::TensorBoard)?,
        args::ExportFormat::Csv => metrics(Format::Csv)?,
        args::ExportFormat::Gguf => vec![adapter(arguments)?],
    };
    for path in paths {
        writeln!(out::shown(), "{}", path.display())?;
    }
    Ok(())
}

/// Writes the best adapter of a run as a GGUF file. An earlier export in the run directory is replaced.
fn adapter(arguments: &args::ExportArgs) -> Result<PathBuf> {
    if let Some(out) = &arguments.out {
        directory::check_free(out)?;
    }
    let model = args::ModelArgs {
        run: Some(arguments.run.clone()),
        ..args::ModelArgs::default()
    };
    let (files, adapter) = open(&model)?;
    let Some(adapter) = adapter else {
        let problem = "the run trained all weights, so it has no adapter";
        return Err(InputError::new(arguments.run.display(), problem).into());
    };
    let folder = arguments.out.clone();
    let path = folder
        .unwrap_or(arguments.run.join("gguf"))
        .join("adapter.gguf");
    write_file(&path, &adapter.to_gguf(files.checkpoint.config())?)?;
    Ok(path)
}
