//! `lapwing merge`: a checkpoint with an adapter merged into its weights. Needs no GPU.

use std::io::Write;

use anyhow::Result;
use lapwing_play::Progress;
use lapwing_train::Config;
use lapwing_train::base::files::Files;
use lapwing_train::record::directory::{self, Trained};

use super::loaded_model::{InputError, source};
use crate::args::{self, MergeArgs};
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;

pub fn merge(arguments: &MergeArgs) -> Result<()> {
    if let Some(run) = &arguments.run {
        directory::is_run(run)?;
    }
    let given = arguments.run.as_deref().or(arguments.adapter.as_deref());
    let given = given.expect("clap requires one of them");
    let adapter = match args::learned(given)? {
        Trained::Adapter(adapter) => adapter,
        Trained::Model(model) => {
            let problem = format!(
                "there is no adapter to merge: the run trained all weights; its model is {}",
                model.display()
            );
            return Err(InputError::new(given.display().to_string(), problem).into());
        }
    };
    let source = match &arguments.run {
        Some(run) => {
            let config = Config::load(&directory::config(run).to_string_lossy(), &[])?;
            out::status(&format!("merges {}", adapter.display()));
            config.model.source()?
        }
        None => {
            // Notes the adapter of a run.
            args::adapter(given)?;
            source(&arguments.model)
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
