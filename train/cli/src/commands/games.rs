//! `lapwing games`: what can be played, and how it can be changed.

use std::io::{self, Write};

use anyhow::Result;
use lapwing_env::{GAMES, Kind};

/// Lists the games.
pub fn list() -> Result<()> {
    let mut out = io::stdout().lock();
    for kind in GAMES {
        describe(kind, &mut out)?;
    }
    writeln!(
        out,
        "Set an option with --set game.options.NAME=VALUE, or under [game.options] of a config file."
    )?;
    Ok(())
}

fn describe(kind: &Kind, out: &mut impl Write) -> Result<()> {
    let scenario = (kind.configure)(&serde_json::json!({}))?;
    let defaults = scenario.options();
    writeln!(out, "{}: {}", kind.name, kind.summary)?;
    writeln!(out, "  actions: {}", scenario.actions().join(", "))?;
    writeln!(out, "  options:")?;
    for name in (kind.options)() {
        match defaults.get(&name) {
            Some(value) => writeln!(out, "    {name} = {value}")?,
            None => writeln!(out, "    {name} (not set)")?,
        }
    }
    writeln!(out)?;
    Ok(())
}
