//! `lapwing merge`: a checkpoint with an adapter worked into its weights. Needs no GPU.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use lapwing_train::base::files::Files;
use lapwing_train::record::directory;
use lapwing_train::{Config, Progress};

use crate::args;
use crate::out;
use crate::progress::Terminal;

/// Writes the merged checkpoint.
pub fn merge(arguments: &args::Merge) -> Result<()> {
    let (model, adapter) = match (&arguments.run, &arguments.adapter) {
        (Some(run), _) => of_run(run)?,
        (None, adapter) => {
            let adapter = adapter.as_deref().expect("clap asks for one of them");
            (arguments.model.clone(), args::adapter(adapter)?)
        }
    };
    let files = Files::open(model.as_deref())?;
    let adapter = files.adapter(&adapter)?;
    let terminal = Terminal::new();
    files
        .checkpoint
        .merge(&adapter, &arguments.out, &mut |done, total| {
            if done == 1 {
                terminal.phase("merging", total, "tensors");
            }
            terminal.done(done);
        })?;
    drop(terminal);
    writeln!(out::shown(), "The model is in {}.", arguments.out.display())?;
    Ok(())
}

/// The model that a run trains for, and its best adapter.
fn of_run(run: &Path) -> Result<(Option<PathBuf>, PathBuf)> {
    directory::is_run(run)?;
    let adapter = directory::trained(run)?;
    let config = directory::config(run);
    let config = Config::load(&config.to_string_lossy(), &[])?;
    out::note(&format!("merges {}", adapter.display()));
    Ok((config.model.directory().map(Path::to_owned), adapter))
}
