//! `lapwing games`: what can be played, and how it can be changed.

use std::io::Write;

use anyhow::Result;
use lapwing_env::{GAMES, GameOption, Kind};
use serde_json::Value;

use crate::out;

/// Lists the games.
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

fn write_named(head: &str, named: &[(&str, &str)], out: &mut impl Write) -> Result<()> {
    if named.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {head}")?;
    let width = named.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, summary) in named {
        writeln!(out, "    {name:width$}  {summary}")?;
    }
    Ok(())
}

fn describe(kind: &Kind, out: &mut impl Write) -> Result<()> {
    let scenario = (kind.configure)(&serde_json::json!({}))?;
    let defaults = scenario.options();
    writeln!(out, "{}: {}", kind.name, kind.summary)?;
    writeln!(out, "  actions: {}", scenario.actions().join(", "))?;
    writeln!(out, "  options, with their defaults:")?;
    let value = |option: &GameOption| match defaults.get(option.name) {
        Some(default) => default.to_string(),
        None => match (option.default)() {
            Value::Null => "not set".to_owned(),
            default => default.to_string(),
        },
    };
    let named: Vec<String> = kind
        .options
        .iter()
        .map(|option| format!("{} = {}", option.name, value(option)))
        .collect();
    let width = named.iter().map(String::len).max().unwrap_or(0);
    for (named, option) in named.iter().zip(kind.options) {
        let (meaning, values) = (option.meaning, option.wanted());
        writeln!(out, "    {named:width$}  {meaning} ({values})")?;
    }
    let named: Vec<(&str, &str)> = kind.variants.iter().map(|v| (v.name, v.summary)).collect();
    write_named("variants, played by these names:", &named, out)?;
    let named: Vec<(&str, &str)> = kind.probes.iter().map(|p| (p.name, p.summary)).collect();
    write_named("probes, for lapwing probe and game.probe:", &named, out)?;
    writeln!(out)?;
    Ok(())
}
