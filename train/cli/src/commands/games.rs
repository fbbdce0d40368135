//! `lapwing games`: the games, their options, variants and probes.

use std::io::{self, Write};

use anyhow::Result;
use lapwing_env::{DeclaredOption, GAMES, Kind};
use lapwing_play::SettingError;
use serde_json::{Value, json};

use crate::out;

/// Prints all games, or one game or variant.
pub fn list(name: Option<&str>, is_json: bool) -> Result<()> {
    let found = match name {
        None => GAMES.iter().map(|kind| (kind, json!({}))).collect(),
        Some(name) => vec![lapwing_env::find_variant(name).map_err(SettingError::from)?],
    };
    let games = found
        .iter()
        .map(|(kind, options)| listed(kind, options, name));
    let games = games.collect::<Result<Vec<_>>>()?;
    if is_json {
        writeln!(out::raw(), "{}", Value::from(games))?;
        return Ok(());
    }
    let mut out = out::shown();
    for game in games {
        describe(&game, &mut out)?;
    }
    writeln!(
        out,
        "Set an option with --set game.options.NAME=VALUE, or under [game.options] of a config file."
    )?;
    Ok(())
}

/// Returns a game, with the values of these options as defaults. A variant has its own name and summary.
fn listed(kind: &'static Kind, given: &Value, name: Option<&str>) -> Result<Value> {
    let scenario = (kind.configure)(given)?;
    let (actions, in_force) = (scenario.actions(), scenario.options());
    let options = kind.options.iter().map(|option| {
        let value = in_force.get(option.name).cloned();
        as_json(option.name, option, value.unwrap_or_else(option.default))
    });
    let named = |name, summary| json!({ "name": name, "summary": summary });
    let variants = kind.variants.iter().map(|v| named(v.name, v.summary));
    let probes = kind.probes.iter().map(|p| named(p.name, p.summary));
    let own = kind.variants.iter().find(|own| Some(own.name) == name);
    let (name, summary) = own.map_or((kind.name, kind.summary), |own| (own.name, own.summary));
    Ok(json!({
        "name": name,
        "summary": summary,
        "variant_of": own.map(|_| kind.name),
        "actions": actions,
        "options": Value::from_iter(options),
        "variants": Value::from_iter(variants.filter(|_| own.is_none())),
        "probes": Value::from_iter(probes),
    }))
}

/// Returns an option or a key with this default.
pub fn as_json(name: &str, option: &DeclaredOption, default: Value) -> Value {
    let (meaning, values) = (option.meaning, option.wanted());
    json!({ "name": name, "meaning": meaning, "values": values, "default": default })
}

/// Returns a default for people.
pub fn default_text(default: &Value) -> String {
    match default {
        Value::Null => "not set".to_owned(),
        default => default.to_string(),
    }
}

fn describe(game: &Value, out: &mut impl Write) -> Result<()> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let list = |key: &str| game[key].as_array().into_iter().flatten();
    let actions: Vec<&str> = list("actions").filter_map(Value::as_str).collect();
    let of = game["variant_of"].as_str();
    let of = of.map_or(String::new(), |kind| format!(" (variant of {kind})"));
    let (name, summary) = (text(game, "name"), text(game, "summary"));
    writeln!(out, "{name}{of}: {summary}")?;
    writeln!(out, "  actions: {}", actions.join(", "))?;
    let options = list("options").map(|option| {
        let (name, default) = (text(option, "name"), default_text(&option["default"]));
        let (meaning, values) = (text(option, "meaning"), text(option, "values"));
        [
            format!("{name} = {default}"),
            format!("{meaning} ({values})"),
        ]
    });
    let head = "options, with their defaults:";
    columns(head, &options.collect::<Vec<_>>(), out)?;
    for (key, head) in [
        ("variants", "variants, played by these names:"),
        ("probes", "probes, for lapwing probe and game.probe:"),
    ] {
        let rows = list(key).map(|row| [text(row, "name"), text(row, "summary")]);
        columns(head, &rows.collect::<Vec<_>>(), out)?;
    }
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
