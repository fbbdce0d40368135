//! `lapwing games`: the games, their options, variants and probes.

use std::io::{self, Write};

use anyhow::Result;
use lapwing_env::{GAMES, GameOption, Kind};
use lapwing_train::ConfigError;
use serde_json::{Value, json};

use crate::{args, out};

/// Prints all games, or one game or variant.
pub fn list(arguments: &args::GamesArgs) -> Result<()> {
    let mut games: Vec<_> = GAMES.iter().map(|kind| (kind, json!({}))).collect();
    if let Some(name) = &arguments.name {
        games = vec![lapwing_env::find_variant(name).map_err(ConfigError::from)?];
    }
    if arguments.json {
        let games = games.iter().map(|(kind, options)| listed(kind, options));
        return out::json(&games.collect::<Result<Vec<_>>>()?);
    }
    let mut out = out::shown();
    for (kind, options) in games {
        if let Some(variant) = kind
            .variants
            .iter()
            .find(|v| Some(v.name) == arguments.name.as_deref())
        {
            writeln!(
                out,
                "{}: {}; a variant of {}\n",
                variant.name, variant.summary, kind.name
            )?;
        }
        describe(kind, &options, &mut out)?;
    }
    writeln!(
        out,
        "Set an option with --set game.options.NAME=VALUE, or under [game.options] of a config file."
    )?;
    Ok(())
}

/// Returns the options of a game, each with its value if these are given.
fn in_force(kind: &'static Kind, given: &Value) -> Result<Vec<(&'static GameOption, Value)>> {
    let options = (kind.configure)(given)?.options();
    let value = |option: &GameOption| options.get(option.name).cloned();
    let options = kind.options.iter();
    let options = options.map(|o| (o, value(o).unwrap_or_else(o.default)));
    Ok(options.collect())
}

fn listed(kind: &'static Kind, given: &Value) -> Result<Value> {
    let options = in_force(kind, given)?.into_iter();
    let options = options.map(|(option, value)| as_json(option.name, option, value));
    let named = |name: &str, summary: &str, options: Value| json!({ "name": name, "summary": summary, "options": options });
    let variants = kind.variants.iter();
    let variants = variants.map(|v| named(v.name, v.summary, (v.options)()));
    let probes = kind.probes.iter();
    let probes = probes.map(|p| named(p.name, p.summary, (p.options)()));
    Ok(json!({
        "name": kind.name,
        "summary": kind.summary,
        "actions": (kind.configure)(given)?.actions(),
        "options": options.collect::<Vec<_>>(),
        "variants": variants.collect::<Vec<_>>(),
        "probes": probes.collect::<Vec<_>>(),
    }))
}

/// Returns an option or key with this default.
pub fn as_json(name: &str, option: &GameOption, default: Value) -> Value {
    json!({
        "name": name,
        "meaning": option.meaning,
        "values": option.wanted(),
        "default": default,
    })
}

/// Returns a default for people.
pub fn default_text(default: &Value) -> String {
    match default {
        Value::Null => "not set".to_owned(),
        default => default.to_string(),
    }
}

fn describe(kind: &'static Kind, given: &Value, out: &mut impl Write) -> Result<()> {
    let actions = (kind.configure)(given)?.actions().join(", ");
    writeln!(out, "{}: {}\n  actions: {actions}", kind.name, kind.summary)?;
    let options = in_force(kind, given)?.into_iter().map(|(option, value)| {
        let name = format!("{} = {}", option.name, default_text(&value));
        [name, format!("{} ({})", option.meaning, option.wanted())]
    });
    let head = match given.as_object().is_some_and(|given| !given.is_empty()) {
        true => "options, with their values in this variant:",
        false => "options, with their defaults:",
    };
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
