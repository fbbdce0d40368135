//! `lapwing config`: every config value and its origin.

use std::io::Write;

use anyhow::Result;

use crate::{args, out};

/// Prints the config as TOML, which `lapwing train` reads.
pub fn show(arguments: &args::ConfigArgs) -> Result<()> {
    let resolved = arguments.resolve(Vec::new())?;
    resolved.notes.iter().for_each(|note| out::note(note));
    write!(out::shown(), "{}", resolved.to_toml())?;
    Ok(())
}
