//! `lapwing config`: every config value and its origin, and the reference of the keys.

use std::io::Write;

use anyhow::Result;
use lapwing_train::config;
use serde_json::json;

use super::games::{as_json, default_text};
use crate::{args, out};

/// Prints the config as TOML, which `lapwing train` reads, or explains its keys.
pub fn show(arguments: &args::ShowArgs) -> Result<()> {
    let resolved = arguments.config.resolve(Vec::new())?;
    if let Some(name) = &arguments.explain {
        let game = lapwing_env::find_variant(&resolved.config.game.name.to_string());
        let keys = config::explain(name, game.map_or(&[], |(kind, _)| kind.options))?;
        if arguments.json {
            let keys = keys
                .iter()
                .map(|(key, option)| as_json(key, option, (option.default)()));
            return out::json(&keys.collect::<Vec<_>>());
        }
        for (key, option) in keys {
            let (meaning, default) = (option.meaning, default_text(&(option.default)()));
            let values = option.wanted();
            writeln!(
                out::shown(),
                "{key}\n  {meaning}\n  values: {values}\n  default: {default}\n"
            )?;
        }
        return Ok(());
    }
    resolved.notes.iter().for_each(|note| out::note(note));
    if arguments.json {
        let origins = resolved.origins.iter();
        let origins = origins.map(|(key, origin)| (key, origin.to_string().into()));
        let origins: serde_json::Map<_, _> = origins.map(|(key, o)| (key.clone(), o)).collect();
        return out::json(&json!({ "config": resolved.config, "origins": origins }));
    }
    write!(out::shown(), "{}", resolved.to_toml())?;
    Ok(())
}
