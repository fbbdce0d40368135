//! `lapwing merge`: a checkpoint with an adapter worked into its weights. Needs no GPU.

use std::io::{self, Write};

use anyhow::Result;
use lapwing_train::Progress;

use super::subject::open;
use crate::args;
use crate::progress::Terminal;

/// Writes the merged checkpoint.
pub fn merge(arguments: &args::Merge) -> Result<()> {
    let files = open(&arguments.model)?;
    let adapter = files.adapter(&arguments.adapter)?;
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
    writeln!(io::stdout(), "The model is in {}.", arguments.out.display())?;
    Ok(())
}
