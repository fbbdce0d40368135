//! `lapwing games`: the games, their options, variants and probes.

use std::io::{self, Write};

use anyhow::Result;
use lapwing_env::{GAMES, Kind};
use serde_json::Value;

use crate::out;

pub fn list() -> Result<()> {
    let mut out = out::shown();
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
    let options = kind.options.iter().map(|option| {
        let default = defaults.get(option.name).cloned();
        let default = match default.unwrap_or_else(option.default) {
            Value::Null => "not set".to_owned(),
            default => default.to_string(),
        };
        let name = format!("{} = {default}", option.name);
        [name, format!("{} ({})", option.meaning, option.wanted())]
    });
    let head = "options, with their defaults:";
    columns(head, &options.collect::<Vec<_>>(), out)?;
    let named = |name: &str, summary: &str| [name.to_owned(), summary.to_owned()];
    let variants = kind.variants.iter().map(|v| named(v.name, v.summary));
    let head = "variants, played by these names:";
    columns(head, &variants.collect::<Vec<_>>(), out)?;
    let probes = kind.probes.iter().map(|p| named(p.name, p.summary));
    let head = "probes, for lapwing probe and game.probe:";
    columns(head, &probes.collect::<Vec<_>>(), out)?;
    writeln!(out)?;
    Ok(())
}

/// Writes rows of aligned cells below a heading; nothing if there are no rows.
fn columns(head: &str, rows: &[[String; 2]], out: &mut impl Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {head}")?;
    let width = rows.iter().map(|row| row[0].len()).max().unwrap_or(0);
    for [name, text] in rows {
        writeln!(out, "    {name:width$}  {text}")?;
    }
    Ok(())
}
