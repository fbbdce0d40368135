//! `lapwing merge`: a checkpoint with an adapter worked into its weights. Needs no GPU.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use lapwing_play::Progress;
use lapwing_train::Config;
use lapwing_train::base::files::Files;
use lapwing_train::base::source::Source;
use lapwing_train::record::directory;
use lapwing_train::record::directory::Trained;

use super::subject::{InputError, typed};
use crate::args;
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;

/// Writes the merged checkpoint.
pub fn merge(arguments: &args::Merge) -> Result<()> {
    let terminal = Terminal::new();
    let (source, adapter) = match (&arguments.run, &arguments.adapter) {
        (Some(run), _) => of_run(run)?,
        (None, adapter) => {
            let adapter = adapter.as_deref().expect("clap asks for one of them");
            if let Trained::Model(model) = args::learned(adapter)? {
                return Err(nothing_to_merge(adapter, &model).into());
            }
            (typed(&arguments.model), args::adapter(adapter)?)
        }
    };
    let files = Files::of(&source, hub(), &terminal)?;
    let adapter = files.adapter(&adapter)?;
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
fn of_run(run: &Path) -> Result<(Source, PathBuf)> {
    directory::is_run(run)?;
    let adapter = match directory::trained(run)? {
        Trained::Adapter(adapter) => adapter,
        Trained::Model(model) => return Err(nothing_to_merge(run, &model).into()),
    };
    let config = directory::config(run);
    let config = Config::load(&config.to_string_lossy(), &[])?;
    out::note(&format!("merges {}", adapter.display()));
    Ok((config.model.source()?, adapter))
}

/// All weights of the model were trained.
fn nothing_to_merge(dir: &Path, model: &Path) -> InputError {
    let problem = format!(
        "there is no adapter to merge: all weights of its model were trained, which is {}, as it is",
        model.display()
    );
    InputError::new(dir.display().to_string(), problem)
}
