//! `lapwing config`: every value in force, and where it comes from.

use std::io::Write;

use anyhow::Result;

use crate::{args, out};

/// Prints it as TOML, which `lapwing train` takes.
pub fn show(request: &args::Request) -> Result<()> {
    let resolved = request.resolve(Vec::new())?;
    resolved.notes.iter().for_each(|note| out::note(note));
    write!(out::shown(), "{}", resolved.to_toml())?;
    Ok(())
}
