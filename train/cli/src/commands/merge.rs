//! `lapwing merge`: a checkpoint with an adapter merged into its weights. Needs no GPU.

use std::io::Write;

use anyhow::Result;
use lapwing_play::Progress;
use lapwing_train::record::directory;

use super::loaded_model::{InputError, open};
use crate::args::MergeArgs;
use crate::out;
use crate::progress::Terminal;

pub fn merge(arguments: &MergeArgs) -> Result<()> {
    // Checked before anything is loaded.
    directory::check_free(&arguments.out)?;
    if arguments.model.quantise.is_some() {
        let problem = "has no effect on merge, which writes the weights as they are stored";
        return Err(InputError::new("--quantise", problem).into());
    }
    let (files, adapter) = open(&arguments.model)?;
    let Some(adapter) = adapter else {
        let problem =
            "there is no adapter to merge: name one with --adapter, or a run that trained one";
        return Err(InputError::new(files.name, problem).into());
    };
    let terminal = Terminal::new();
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
