//! `lapwing merge`: a checkpoint with an adapter worked into its weights. Needs no GPU.

use std::io::{self, Write};

use anyhow::Result;
use lapwing::base::Files;
use lapwing::progress::Progress;

use crate::cli;

/// Writes the merged checkpoint.
pub fn merge(arguments: &cli::Merge) -> Result<()> {
    let files = Files::open(arguments.model.as_deref())?;
    let adapter = files.adapter(&arguments.adapter)?;
    let progress = Progress::new();
    files
        .checkpoint
        .merge(&adapter, &arguments.out, &mut |done, total| {
            if done == 1 {
                progress.phase("merging", total, "tensors");
            }
            progress.progress(done);
        })?;
    drop(progress);
    writeln!(io::stdout(), "The model is in {}.", arguments.out.display())?;
    Ok(())
}
