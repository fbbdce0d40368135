//! `lapwing merge`: a checkpoint with an adapter merged into its weights. Needs no GPU.

use std::io::Write;

use anyhow::Result;
use lapwing_play::Progress;
use lapwing_train::base::files::Files;
use lapwing_train::record::directory;

use super::loaded_model::{InputError, selected};
use crate::args::MergeArgs;
use crate::hub::hub;
use crate::out;
use crate::progress::Terminal;

pub fn merge(arguments: &MergeArgs) -> Result<()> {
    // Checked before anything is loaded.
    directory::check_free(&arguments.out)?;
    let MergeArgs {
        run,
        model,
        adapter,
        out,
    } = arguments;
    let (source, adapter) = selected(run, model, adapter)?;
    let Some(adapter) = adapter else {
        let model = source.name();
        let problem = format!(
            "the run trained all weights: there is no adapter to merge, and its model is {model}"
        );
        return Err(InputError::new("merge", problem).into());
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
    checkpoint.merge(&adapter, out, &mut progress)?;
    drop(terminal);
    writeln!(out::shown(), "The model is in {}.", out.display())?;
    Ok(())
}
