//! `lapwing config`: every config value and its origin, and the reference of the keys.

use std::io::Write;

use anyhow::Result;
use clap::CommandFactory;
use lapwing_play::external;
use lapwing_train::{Config, config::explain as explained};
use serde_json::{Value, json};

use super::games::{as_json, default_text};
use crate::{args, out};

/// Prints the config as TOML, which `lapwing train` reads, or explains its keys.
pub fn show(arguments: &args::ConfigArgs, explain: Option<&str>, is_json: bool) -> Result<()> {
    let (resolved, checked) = Config::examine(&arguments.config, &arguments.settings()?)?;
    if let Some(name) = explain {
        let game = lapwing_env::find_variant(&resolved.config.game.name.to_string());
        let game = game.map_or(external::OPTIONS, |(kind, _)| kind.options);
        let of_external = |unknown| explained(name, external::OPTIONS).map_err(|_| unknown);
        let keys = explained(name, game).or_else(of_external)?;
        let keys = keys
            .iter()
            .map(|(key, option)| as_json(key, option, (option.default)()));
        if is_json {
            writeln!(out::raw(), "{}", Value::from_iter(keys))?;
            return Ok(());
        }
        let described = keys.map(|key| {
            let text = |name: &str| key[name].as_str().unwrap_or_default().to_owned();
            let (name, meaning, values) = (text("name"), text("meaning"), text("values"));
            let default = default_text(&key["default"]);
            format!("{name}\n  {meaning}\n  values: {values}\n  default: {default}\n")
        });
        // The help breaks the lines.
        let page = args::Cli::command().help_template("{after-help}");
        let mut page = page.after_help(described.collect::<String>());
        writeln!(out::shown(), "{}", page.render_help().to_string().trim())?;
        return Ok(());
    }
    resolved.notes.iter().for_each(|note| out::note(note));
    if let Err(problem) = checked {
        out::warning(&problem.to_string());
    }
    if is_json {
        let origin = |(key, origin): (&String, &_)| (key.clone(), format!("{origin}"));
        let origins: Value = resolved.origins.iter().map(origin).collect();
        let config = json!({ "config": resolved.config, "origins": origins });
        writeln!(out::raw(), "{config}")?;
        return Ok(());
    }
    write!(out::shown(), "{}", resolved.to_toml())?;
    Ok(())
}
