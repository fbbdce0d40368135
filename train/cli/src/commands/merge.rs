//! `lapwing merge`: a checkpoint with an adapter merged into its weights. Needs no GPU.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use lapwing_play::Progress;
use lapwing_train::Config;
use lapwing_train::base::files::Files;
use lapwing_train::base::source::ModelSource;
use lapwing_train::record::directory::{self, Trained};

use super::loaded_model::{InputError, source};
use crate::args::{self, MergeArgs};
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;

/// Writes the merged checkpoint.
pub fn merge(arguments: &MergeArgs) -> Result<()> {
    let (source, adapter) = match (&arguments.run, &arguments.adapter) {
        (Some(run), _) => of_run(run)?,
        (None, adapter) => {
            let adapter = adapter.as_deref().expect("clap requires one of them");
            if let Trained::Model(model) = args::learned(adapter)? {
                return Err(nothing_to_merge(adapter, &model).into());
            }
            (source(&arguments.model), args::adapter(adapter)?)
        }
    };
    let terminal = Terminal::new();
    let files = Files::of(&source, hub(), &terminal)?;
    let adapter = files.adapter(&adapter)?;
    let mut progress = |done, total| {
        if done == 1 {
            terminal.phase("merging", total, "tensors");
        }
        terminal.done(done);
    };
    let checkpoint = &files.checkpoint;
    checkpoint.merge(&adapter, &arguments.out, &mut progress)?;
    drop(terminal);
    writeln!(out::shown(), "The model is in {}.", arguments.out.display())?;
    Ok(())
}

/// Returns the model of a run and its best adapter.
fn of_run(run: &Path) -> Result<(ModelSource, PathBuf)> {
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

fn nothing_to_merge(dir: &Path, model: &Path) -> InputError {
    let problem = format!(
        "there is no adapter to merge: the run trained all weights; its model is {}",
        model.display()
    );
    InputError::new(dir.display().to_string(), problem)
}
