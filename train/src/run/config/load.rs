//! From a preset or a file and some settings to a config, saying what is wrong with them.

use std::path::Path;

use toml::{Table, Value};

use super::{Config, ConfigError, Game, check::check};

/// A config that is built into the program.
#[derive(Debug)]
pub struct Preset {
    /// The name by which it is asked for.
    pub name: &'static str,
    text: &'static str,
}

macro_rules! presets {
    ($($name:literal)*) => {
        &[$(Preset {
            name: $name,
            text: include_str!(concat!("../../../presets/", $name, ".toml")),
        }),*]
    };
}

/// Every preset, the default first.
pub static PRESETS: &[Preset] = presets![
    "frozen-lake"
    "frozen-lake-slippery"
    "frozen-lake-large"
    "snake"
    "frozen-lake-paper"
    "snake-paper"
];

impl Config {
    /// The preset of this name, or the file if it ends in `.toml`, with settings of the form `train.lr=0.001` on top.
    ///
    /// # Errors
    /// If there is no such preset, file, key or game, or a value is not one that its key can take.
    pub fn load(request: &str, settings: &[String]) -> Result<Config, ConfigError> {
        let (name, text, origin) = if request.ends_with(".toml") {
            let path = Path::new(request);
            let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
                path: path.to_owned(),
                source,
            })?;
            let stem = path.file_stem().unwrap_or_default();
            (
                stem.to_string_lossy().into_owned(),
                text,
                request.to_owned(),
            )
        } else {
            let preset = preset(request)?;
            (
                preset.name.to_owned(),
                preset.text.to_owned(),
                format!("the preset {request}"),
            )
        };
        let given = text.parse::<Table>().map_err(|e| ConfigError::Syntax {
            origin: origin.clone(),
            reason: e.to_string(),
        })?;

        let mut table = defaults();
        table.insert("name".to_owned(), Value::String(name));
        overlay(&mut table, "", given, &origin)?;
        Config::over(table, settings, origin)
    }

    /// The defaults with these settings on top.
    ///
    /// # Errors
    /// If a setting names no key, or a value that its key cannot take.
    pub fn of(settings: &[String]) -> Result<Config, ConfigError> {
        Config::over(defaults(), settings, "the defaults".to_owned())
    }

    fn over(mut table: Table, settings: &[String], origin: String) -> Result<Config, ConfigError> {
        for (key, value) in ordered(settings)? {
            overlay(&mut table, "", nested(&key, value), "--set")?;
        }
        let mut config = read(table).map_err(|e| ConfigError::Syntax {
            origin,
            reason: e.to_string(),
        })?;
        check(&config)?;
        config.policy.template_variables()?;
        config.resolve_game()?;
        Ok(config)
    }

    /// As TOML, every key with the value in force. Loading it gives the same config.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a checked config holds plain values only")
    }

    /// Asks the game whether it takes these options, and notes the value of those left out.
    fn resolve_game(&mut self) -> Result<(), ConfigError> {
        self.game = Game::of(&*self.game.scenario()?);
        Ok(())
    }
}

/// A table as JSON, which is what games and templates read.
pub(super) fn json(
    section: &str,
    table: &Table,
) -> Result<serde_json::Map<String, serde_json::Value>, ConfigError> {
    let entry = |(name, value): (&String, &Value)| {
        let key = format!("{section}.{name}");
        Ok((name.clone(), json_value(&key, value)?))
    };
    table.iter().map(entry).collect()
}

/// TOML has numbers that are none, which JSON has not: as null they would be ignored in silence. A date is the text that
/// was written.
fn json_value(key: &str, value: &Value) -> Result<serde_json::Value, ConfigError> {
    Ok(match value {
        Value::String(text) => text.as_str().into(),
        Value::Integer(number) => (*number).into(),
        Value::Boolean(is) => (*is).into(),
        Value::Float(number) if number.is_finite() => (*number).into(),
        Value::Float(_) => {
            return Err(ConfigError::Range {
                key: key.to_owned(),
                found: value.to_string(),
                wanted: "a finite number".to_owned(),
            });
        }
        Value::Datetime(date) => date.to_string().into(),
        Value::Array(items) => {
            let items = items.iter().map(|item| json_value(key, item));
            items.collect::<Result<Vec<_>, _>>()?.into()
        }
        Value::Table(table) => json(key, table)?.into(),
    })
}

fn preset(name: &str) -> Result<&'static Preset, ConfigError> {
    PRESETS
        .iter()
        .find(|preset| preset.name == name)
        .ok_or_else(|| {
            let known: Vec<String> = PRESETS
                .iter()
                .map(|preset| preset.name.to_owned())
                .collect();
            ConfigError::UnknownPreset {
                name: name.to_owned(),
                suggestion: lapwing_env::suggestion(name, &known),
                known: known.join(", "),
            }
        })
}

fn defaults() -> Table {
    Table::try_from(Config::default()).expect("the defaults are plain values")
}

fn read(table: Table) -> Result<Config, toml::de::Error> {
    table.try_into()
}

/// The settings as keys and values, the game first: choosing a game drops the options of the one before.
fn ordered(settings: &[String]) -> Result<Vec<(String, Value)>, ConfigError> {
    let mut pairs = Vec::new();
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .filter(|(key, _)| !key.trim().is_empty())
            .ok_or_else(|| ConfigError::Setting {
                given: setting.clone(),
            })?;
        pairs.push((key.trim().to_owned(), value_of(value.trim())));
    }
    pairs.sort_by_key(|(key, _)| key != "game.name");
    Ok(pairs)
}

/// A TOML value; what is none is taken for a text whose quotes the shell has eaten.
fn value_of(text: &str) -> Value {
    match format!("value = {text}").parse::<Table>() {
        Ok(mut table) if table.len() == 1 => table.remove("value").expect("just written"),
        _ => Value::String(text.to_owned()),
    }
}

/// `a.b.c` and a value as the table that TOML would make of them.
fn nested(key: &str, value: Value) -> Table {
    let table = key.rsplit('.').fold(value, |inner, name| {
        Value::Table(Table::from_iter([(name.to_owned(), inner)]))
    });
    match table {
        Value::Table(table) => table,
        _ => unreachable!("a key has at least one part"),
    }
}

/// Tables whose keys are not ours: the game knows its options, and says so when it is configured; the chat template
/// knows its variables.
const OPEN: [&str; 2] = ["game.options", "policy.chat_template_kwargs"];

/// Writes the given values over those of the table, whose keys are all the keys there are.
fn overlay(root: &mut Table, section: &str, given: Table, origin: &str) -> Result<(), ConfigError> {
    for (name, value) in given {
        let key = if section.is_empty() {
            name
        } else {
            format!("{section}.{name}")
        };
        match (find(root, &key), value) {
            (Some(Value::Table(options)), Value::Table(given)) if OPEN.contains(&&*key) => {
                options.extend(given)
            }
            (Some(Value::Table(_)), Value::Table(given)) => overlay(root, &key, given, origin)?,
            (Some(Value::Table(_)), other) if OPEN.contains(&&*key) => {
                return Err(refused(&key, origin, &other, "a table".to_owned()));
            }
            (Some(Value::Table(section)), other) => {
                let keys = section.keys().cloned().collect::<Vec<_>>().join(", ");
                let wanted = format!("a key in it; they are {keys}");
                return Err(refused(&key, origin, &other, wanted));
            }
            (Some(_), value) => set(root, &key, value, origin)?,
            (None, _) => return Err(unknown(root, &key, origin)),
        }
    }
    Ok(())
}

fn find<'a>(root: &'a mut Table, key: &str) -> Option<&'a mut Value> {
    let mut names = key.split('.');
    let mut value = root.get_mut(names.next()?)?;
    for name in names {
        value = value.as_table_mut()?.get_mut(name)?;
    }
    Some(value)
}

/// Sets one value. The whole is read each time, so that a complaint is about this key.
fn set(root: &mut Table, key: &str, value: Value, origin: &str) -> Result<(), ConfigError> {
    let place = find(root, key).expect("known");
    if key == "game.name" && *place != value {
        find(root, "game.options")
            .expect("known")
            .as_table_mut()
            .expect("a table")
            .clear();
    }
    *find(root, key).expect("known") = value.clone();
    match read(root.clone()) {
        Ok(_) => Ok(()),
        Err(error) => Err(refused(key, origin, &value, in_words(error.message()))),
    }
}

fn refused(key: &str, origin: &str, found: &Value, wanted: String) -> ConfigError {
    ConfigError::Value {
        key: key.to_owned(),
        origin: origin.to_owned(),
        found: found.to_string(),
        wanted,
    }
}

/// What serde expected, in words for people who do not know Rust's types.
fn in_words(message: &str) -> String {
    let wanted = message
        .split_once("expected ")
        .map_or(message, |(_, wanted)| wanted);
    match wanted {
        "usize" | "u64" => "a whole number, 0 or more",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a text",
        "a sequence" => "a list",
        // The one value that may be of two kinds.
        other if other.contains("untagged enum Targets") => {
            "\"all-linear\", a list of names, or a pattern"
        }
        other => other,
    }
    .to_owned()
}

/// The error for a key that is not there: the nearest, and what there is beside it.
fn unknown(root: &mut Table, key: &str, origin: &str) -> ConfigError {
    let all = all_keys(root);
    // Someone who writes `lr` means `train.lr`; someone who writes `train.lrr` means it too.
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let suggestion = match all.iter().find(|known| last(known) == last(key)) {
        Some(known) => format!(" (did you mean `{known}`?)"),
        None => lapwing_env::suggestion(key, &all),
    };
    let section = key.rsplit_once('.').map(|(section, _)| section);
    let (place, known) =
        match section.and_then(|section| Some((section, find(root, section)?.as_table()?))) {
            Some((section, table)) => (format!("the keys of [{section}] are"), table),
            None => ("at the top are".to_owned(), &*root),
        };
    let known = known.keys().cloned().collect::<Vec<_>>().join(", ");
    ConfigError::UnknownKey {
        key: key.to_owned(),
        origin: origin.to_owned(),
        suggestion,
        place,
        known,
    }
}

fn all_keys(root: &Table) -> Vec<String> {
    let mut keys = Vec::new();
    for (section, value) in root {
        if let Value::Table(table) = value {
            keys.extend(table.keys().map(|key| format!("{section}.{key}")));
        }
        keys.push(section.clone());
    }
    keys
}
