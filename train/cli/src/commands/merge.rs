//! `lapwing merge`: a model with an adapter merged into its weights, or converted to GGUF. Needs no GPU.

use std::io::Write;

use anyhow::Result;
use lapwing_model::{GgufType, is_gguf};
use lapwing_play::Progress;
use lapwing_train::record::directory;

use super::loaded_model::{InputError, open};
use crate::args::{MatrixType, MergeArgs, MergeFormat};
use crate::out as terminal_out;
use crate::progress::Terminal;

pub fn merge(arguments: &MergeArgs) -> Result<()> {
    // Checked before anything is loaded.
    let (out, is_gguf_file) = (&arguments.out, is_gguf(&arguments.out));
    let problem = match (arguments.format, arguments.kind) {
        (MergeFormat::Gguf, _) if !is_gguf_file => {
            Some("wanted a file that ends with .gguf for --format gguf")
        }
        (MergeFormat::Hf, _) if is_gguf_file => {
            Some("is the name of a file; to write one, add --format gguf")
        }
        (MergeFormat::Hf, Some(_)) => Some("--type is of GGUF files; add --format gguf"),
        _ => None,
    };
    if let Some(problem) = problem {
        return Err(InputError::new(out.display(), problem).into());
    }
    directory::check_free(out)?;
    if arguments.model.quantise.is_some() {
        let problem = "has no effect on merge, which writes the weights as they are stored";
        return Err(InputError::new("--quantise", problem).into());
    }
    let (files, adapter) = open(&arguments.model)?;
    if adapter.is_none() && arguments.format == MergeFormat::Hf {
        let problem = "there is no adapter to merge: name one with --adapter, or a run that trained one; to convert the model, add --format gguf";
        return Err(InputError::new(files.name, problem).into());
    }
    let terminal = Terminal::new();
    let mut progress = |done, total| {
        if done == 1 {
            terminal.phase("merging", total, "tensors");
        }
        terminal.done(done);
    };
    let (checkpoint, progress) = (&files.checkpoint, &mut progress);
    let kind = match arguments.kind {
        Some(MatrixType::Q8) => GgufType::Q8,
        Some(MatrixType::F16) | None => GgufType::F16,
    };
    match &adapter {
        Some(adapter) if arguments.format == MergeFormat::Hf => {
            checkpoint.merge(adapter, out, progress)?;
        }
        adapter => checkpoint.merge_gguf(adapter.as_ref(), out, kind, progress)?,
    }
    drop(terminal);
    writeln!(terminal_out::shown(), "The model is in {}.", out.display())?;
    Ok(())
}
