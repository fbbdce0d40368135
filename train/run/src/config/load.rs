//! Loading of configs from a name and settings.

use std::collections::BTreeMap;
use std::path::Path;

use toml::{Table, Value};

use super::origin::{Origin, find, nested};
use super::request::{ConfigRequest, PRESETS};
use super::resolved::Resolved;
use super::{Config, ConfigError, check::check, unused};
use crate::Error;
use crate::record::directory;
use lapwing_learn::config::{Optimiser, Weights};
use lapwing_play::SettingError;
use lapwing_play::config::GameConfig;
use lapwing_play::external::{self, GameName};

impl Config {
    /// Does the same as [`Config::resolve`], without the origins.
    ///
    /// # Errors
    /// As there.
    pub fn load(request: &str, settings: &[String]) -> Result<Config, ConfigError> {
        Ok(Config::resolve(request, settings)?.config)
    }

    /// Loads the preset of this name, the game of this name with its defaults, the file if the name ends in `.toml`, or
    /// the run in this directory; then applies settings of the form `train.steps=9`, or `--steps train.steps=9` of an
    /// option. A file may begin with `base`, the name of a preset or of a file beside it, and set only the differences.
    ///
    /// # Errors
    /// If there is no such preset, file, run, key or game, or a value is invalid.
    pub fn resolve(request: &str, settings: &[String]) -> Result<Resolved, ConfigError> {
        let (resolved, checked) = Config::examine(request, settings)?;
        checked.map(|()| resolved)
    }

    /// Does the same, and returns an invalid value or game as a result beside the others.
    ///
    /// # Errors
    /// If there is no such preset, file, run or key, or a value has the wrong type.
    pub fn examine(
        request: &str,
        settings: &[String],
    ) -> Result<(Resolved, Result<(), ConfigError>), ConfigError> {
        // Malformed settings are reported first: `--set train.lr 1` would otherwise look for a preset named 1.
        let settings = ordered(settings, request)?;
        let source = ConfigRequest::read(request)?;
        let mut layered = Layered {
            table: defaults(),
            origins: BTreeMap::new(),
        };
        layered
            .table
            .insert("name".to_owned(), Value::String(source.name));
        for (origin, table) in source.layers {
            layered.overlay("", table, &origin)?;
        }
        // A file with every value that has an effect was written by lapwing.
        let idle = unused::keys(&read(layered.table.clone()).expect("read after each change"));
        let said = |key: &String| matches!(layered.origins.get(key), Some(Origin::File(_)));
        let is_said = |key: &String| said(key) || idle.contains(key);
        let is_whole = source.run.is_some() || all_values(&defaults()).iter().all(is_said);
        if is_whole {
            for origin in layered.origins.values_mut() {
                *origin = Origin::Written(origin.to_string());
            }
        }
        let game = layered.game();
        for (key, value, option) in settings {
            layered.overlay("", nested(&key, value), &Origin::Setting(option))?;
        }
        let changes_game = layered.game() != game;
        if changes_game && !layered.origins.contains_key("name") {
            let mut name = layered.game();
            if let Value::String(game) = &mut name {
                *game = GameName::from(&**game).short();
            }
            layered.table.insert("name".to_owned(), name);
        }
        let mut resolved = Resolved {
            config: read(layered.table).expect("read after each change"),
            origins: layered.origins,
            notes: Vec::new(),
            run: source.run,
        };
        if resolved.config.learner.has_language() && resolved.has_large_model() {
            resolved.suit_other_model();
        }
        resolved.follow_group_size();
        let (values, game) = (check(&resolved), resolved.config.resolve_game());
        let checked = values.and(game).map_err(|mut error| {
            if let ConfigError::Setting(SettingError::Range { key, found, .. }) = &mut error {
                *found += &format!(" ({})", resolved.origin(key));
            }
            error
        });
        let (name, model) = (&resolved.config.game.name, &resolved.config.model);
        let of_game = |preset: &&super::Preset| GameName::from(preset.name) == *name;
        let preset = PRESETS.iter().find(of_game).map(|preset| preset.name);
        let is_preset = |origin: &&Origin| changes_game && matches!(origin, Origin::Preset(_));
        let other = resolved.origins.values().find(is_preset);
        let has_none = model.dir.is_none() && model.repo.is_none();
        let bare = source.bare.filter(|_| !is_whole && has_none);
        resolved.notes.extend(match (preset, bare, other) {
            (Some(preset), Some(file), _) => Some(format!(
                "{file} starts from the general defaults; base = \"{preset}\" would start from a preset"
            )),
            (Some(preset), _, Some(other)) => Some(format!(
                "{preset} is played with the other values of {other}; `lapwing train {preset}` starts from the preset for it"
            )),
            _ => None,
        });
        let lr = resolved.origins.get("train.lr");
        let train = &resolved.config.train;
        let rate_for = match lr {
            None => Some(Optimiser::AdamW),
            Some(Origin::Preset(name)) => super::request::preset(name).map(|it| it.optimiser()),
            // The user's.
            Some(_) => None,
        };
        let was_for = match (rate_for, train.optimiser) {
            (Some(Optimiser::AdamW), Optimiser::Muon) => Some(
                "AdamW; Muon wants 3e-3 for the built-in model, falling to 0 (train.lr_end = 0)",
            ),
            (Some(Optimiser::Muon), Optimiser::AdamW) => Some(
                "Muon; AdamW wants 5e-4 for the built-in model, which need not fall (train.lr_end = 1)",
            ),
            (Some(_), _) if train.weights == Weights::All => Some(
                "an adapter; all weights want a rate of their own, in large models about a tenth",
            ),
            _ => None,
        };
        if let Some(what) = was_for {
            let origin = lr.map_or("the default".to_owned(), ToString::to_string);
            let note = format!("train.lr = {} ({origin}) was chosen for {what}", train.lr);
            resolved.notes.push(note);
        }
        let unused = unused::notes(&resolved.config, &resolved.origins);
        resolved.notes.extend(unused);
        Ok((resolved, checked))
    }

    /// Reads the config of a run.
    ///
    /// # Errors
    /// If this is not the directory of a run, or the file is invalid.
    pub fn of_run(run: &Path) -> Result<Config, Error> {
        directory::is_run(run)?;
        Ok(Config::load(
            &directory::config(run).to_string_lossy(),
            &[],
        )?)
    }

    /// Returns the defaults, with every option of the default game.
    pub fn resolved_default() -> Config {
        let mut config = Config::default();
        let resolved = config.resolve_game();
        resolved.expect("the default game takes its defaults");
        config
    }

    /// Makes paths absolute, except for those that would be no text, which TOML could not hold.
    #[must_use]
    pub fn absolute(mut self) -> Config {
        let absolute = |path: &Path| std::path::absolute(path).ok()?.to_str().map(str::to_owned);
        // An empty path stays empty.
        if let Some(path) = absolute(self.value.network.as_ref()) {
            self.value.network = path;
        }
        if self.warmup.has_file()
            && let Some(path) = absolute(self.warmup.player.as_ref())
        {
            self.warmup.player = path;
        }
        let model = &mut self.model;
        let dirs = [&mut model.dir, &mut model.tokenizer, &mut model.adapter];
        let dirs = dirs.into_iter().flatten();
        for path in dirs.chain(&mut self.policy.templates) {
            if let Some(whole) = absolute(path) {
                *path = whole.into();
            }
        }
        self
    }

    /// Returns the config as TOML, every key with its value. Loading it gives the same config.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a checked config holds plain values only")
    }

    /// Checks the game's options and adds the values of omitted ones.
    pub(super) fn resolve_game(&mut self) -> Result<(), ConfigError> {
        self.game = GameConfig::of(&*self.game.scenario()?);
        for mix in &self.mix {
            mix.scenario(&self.game)?;
        }
        Ok(())
    }
}

/// Keys of sweep files that configs do not have.
const SWEEP_KEYS: [&str; 5] = ["seeds", "set", "settings", "grid", "compare"];

fn defaults() -> Table {
    Table::try_from(Config::default()).expect("the defaults are plain values")
}

fn read(table: Table) -> Result<Config, toml::de::Error> {
    table.try_into()
}

/// The key, the value, and the option.
type TypedSetting = (String, Value, String);

/// Splits the settings, the game first: selecting a game drops the options of the previous one.
fn ordered(settings: &[String], request: &str) -> Result<Vec<TypedSetting>, ConfigError> {
    let mut pairs = Vec::new();
    for setting in settings {
        let named = setting.strip_prefix("--");
        let named = named.and_then(|named| named.split_once(' '));
        let (option, setting) = named.unwrap_or(("set", setting));
        let pair = setting.split_once('=');
        let Some((key, value)) = pair.filter(|(key, _)| !key.trim().is_empty()) else {
            return Err(ConfigError::Invalid(format!(
                "--set takes KEY=VALUE, such as train.lr=0.001, but was given `{setting}`{}",
                meant(setting, request)
            )));
        };
        let value = value_of(value.trim());
        pairs.push((key.trim().to_owned(), value, option.to_owned()));
    }
    pairs.sort_by_key(|(key, ..)| key != "game.name");
    Ok(pairs)
}

/// Returns ` (did you mean ...?)` for a key without a value, if the value was given as the name of a config.
fn meant(setting: &str, request: &str) -> String {
    let is_key = all_keys(&defaults()).iter().any(|key| key == setting);
    match is_key && ConfigRequest::read(request).is_err() {
        true => format!(" (did you mean `{setting}={request}`?)"),
        false => String::new(),
    }
}

/// Parses a TOML value. Invalid TOML is taken as a string whose quotes the shell has removed.
fn value_of(text: &str) -> Value {
    match format!("value = {text}").parse::<Table>() {
        Ok(mut table) if table.len() == 1 => table.remove("value").expect("just written"),
        _ => Value::String(text.to_owned()),
    }
}

/// Tables with keys of the game or the chat template, which are checked later.
const OPEN: [&str; 2] = ["game.options", "policy.chat_template_kwargs"];

/// A table of values, and the origins of those that are not defaults.
struct Layered {
    table: Table,
    origins: BTreeMap<String, Origin>,
}

impl Layered {
    /// Overrides values of the table, which has all valid keys.
    fn overlay(&mut self, section: &str, given: Table, origin: &Origin) -> Result<(), ConfigError> {
        let refused = |key: &str, found: &Value, wanted: &str| {
            ConfigError::value(key, &origin.to_string(), found, wanted)
        };
        for (name, value) in given {
            let key = super::reference::dotted(section, &name);
            match (find(&mut self.table, &key), value) {
                (Some(Value::Table(options)), Value::Table(given)) if OPEN.contains(&&*key) => {
                    for (name, value) in given {
                        let key = format!("{key}.{name}");
                        self.origins.insert(key, origin.clone());
                        options.insert(name, value);
                    }
                }
                (Some(Value::Table(_)), Value::Table(given)) => {
                    self.overlay(&key, given, origin)?;
                }
                (Some(Value::Table(_)), other) if OPEN.contains(&&*key) => {
                    return Err(refused(&key, &other, "a table"));
                }
                (Some(Value::Table(section)), other) => {
                    let keys = section.keys().cloned().collect::<Vec<_>>().join(", ");
                    let wanted = format!("a key in it; they are {keys}");
                    return Err(refused(&key, &other, &wanted));
                }
                (Some(_), value) => self.set(key, value, origin)?,
                (None, _) => return Err(unknown(&mut self.table, &key, origin)),
            }
        }
        Ok(())
    }

    /// Sets one value. The whole table is parsed each time, so that an error concerns this key.
    fn set(&mut self, key: String, value: Value, origin: &Origin) -> Result<(), ConfigError> {
        if key == "game.name" && self.game() != value {
            let options = find(&mut self.table, "game.options").and_then(Value::as_table_mut);
            options.expect("a table").clear();
            self.origins
                .retain(|key, _| !key.starts_with("game.options."));
        }
        // A repository replaces the directory of an earlier layer, and the other way round.
        let other = match &*key {
            "model.repo" => "model.dir",
            "model.dir" => "model.repo",
            _ => "",
        };
        let is_earlier = |before: &Origin| before != origin;
        if value.as_str() != Some("") && self.origins.get(other).is_some_and(is_earlier) {
            *find(&mut self.table, other).expect("known") = Value::String(String::new());
            self.origins.remove(other);
        }
        *find(&mut self.table, &key).expect("known") = value.clone();
        match read(self.table.clone()) {
            Ok(_) => {
                self.origins.insert(key, origin.clone());
                Ok(())
            }
            Err(error) => {
                let (origin, wanted) = (origin.to_string(), in_words(error.message()));
                Err(ConfigError::value(&key, &origin, &value, wanted))
            }
        }
    }

    /// Returns the name of the game.
    fn game(&self) -> Value {
        self.table["game"]["name"].clone()
    }
}

/// Rewords serde's expectation for people who do not know Rust's types.
fn in_words(message: &str) -> &str {
    let wanted = message
        .split_once("expected ")
        .map_or(message, |(_, wanted)| wanted);
    match wanted {
        "usize" | "u64" => "an integer, 0 or more",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        other => other,
    }
}

/// Returns the error for an unknown key, with the nearest key and the existing ones.
fn unknown(root: &mut Table, key: &str, origin: &Origin) -> ConfigError {
    let is_file = matches!(origin, Origin::File(_));
    if is_file {
        root.insert("base".to_owned(), Value::from(""));
    }
    let all = all_keys(root);
    // `lr` and `train.lrr` both mean `train.lr`.
    let suggestion = match (key.split_once('.'), key_among(&all, key)) {
        (Some((heading, key)), _) if is_file && root.contains_key(key) => {
            format!(
                " (did you mean `{key}`? if it is below the heading [{heading}], move it above all headings)"
            )
        }
        (_, Some(known)) => format!(" (did you mean `{known}`?)"),
        _ if is_file && SWEEP_KEYS.contains(&key) => {
            " (if this is a sweep file, give it to `lapwing sweep`)".to_owned()
        }
        (_, None) => lapwing_env::suggestion(key, &all),
    };
    let section = key.rsplit_once('.').map(|(section, _)| section);
    let (place, known) =
        match section.and_then(|section| Some((section, find(root, section)?.as_table()?))) {
            Some((section, table)) => (format!("the keys of [{section}] are"), table),
            None => ("at the top are".to_owned(), &*root),
        };
    let known = known.keys().cloned().collect::<Vec<_>>().join(", ");
    ConfigError::Invalid(format!(
        "unknown key `{key}` in {origin}{suggestion}; {place} {known}"
    ))
}

/// Returns the key that ends with this name, first of all that of `[train]` or `[policy]`.
pub fn key_of_name(name: &str) -> Option<String> {
    key_among(&all_values(&defaults()), name).cloned()
}

fn key_among<'a>(all: &'a [String], key: &str) -> Option<&'a String> {
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let alike = all.iter().filter(|known| last(known) == last(key));
    // The first of the best: `max_by_key` returns the last.
    let rank = |known: &&String| [key, "train.", "policy."].map(|it| known.starts_with(it));
    alike.rev().max_by_key(rank)
}

fn all_keys(root: &Table) -> Vec<String> {
    let mut keys = all_values(root);
    keys.extend(root.keys().filter(|key| root[*key].is_table()).cloned());
    keys.extend(OPEN.map(str::to_owned));
    let games = lapwing_env::GAMES.iter().map(|game| game.options);
    let options = games.chain([external::OPTIONS]).flatten();
    keys.extend(options.map(|option| format!("game.options.{}", option.name)));
    keys
}

/// Returns the keys of all values that are not tables. (The two open tables are empty by default.)
fn all_values(root: &Table) -> Vec<String> {
    let mut keys = Vec::new();
    for (section, value) in root {
        match value {
            Value::Table(table) => {
                let values = table.iter().filter(|(_, value)| !value.is_table());
                keys.extend(values.map(|(key, _)| format!("{section}.{key}")));
            }
            _ => keys.push(section.clone()),
        }
    }
    keys
}
