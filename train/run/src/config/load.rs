//! From what was asked for and some settings to a config, saying what is wrong with them.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::request::{ConfigRequest, PRESETS};
use super::resolved::{Origin, Resolved};
use super::{Config, ConfigError, check::check, unused};
use lapwing_learn::config::Weights;
use lapwing_play::config::GameConfig;
use lapwing_play::external::GameName;

impl Config {
    /// What [`Config::resolve`] finds, without where it comes from.
    ///
    /// # Errors
    /// As there.
    pub fn load(request: &str, settings: &[String]) -> Result<Config, ConfigError> {
        Ok(Config::resolve(request, settings)?.config)
    }

    /// The preset of this name, the game of this name by the defaults, the file if it ends in `.toml`, or the run in this
    /// directory; with settings of the form `train.lr=0.001` on top. A file may begin with `base`, the name of a preset
    /// or of another file beside it, and say only what it does differently.
    ///
    /// # Errors
    /// If there is no such preset, file, run, key or game, or a value is not one that its key can take.
    pub fn resolve(request: &str, settings: &[String]) -> Result<Resolved, ConfigError> {
        // What was typed wrong is told first: `--set train.lr 1` asks for a preset called 1.
        let settings = ordered(settings, request)?;
        let source = ConfigRequest::read(request)?;
        let mut layered = Layered {
            table: defaults(),
            origins: BTreeMap::new(),
        };
        layered
            .table
            .insert("name".to_owned(), Value::String(source.name));
        if let Some(game) = source.game {
            let game = nested("game.name", Value::String(game));
            layered.overlay("", game, &Origin::Setting)?;
        }
        for (origin, table) in source.layers {
            layered.overlay("", table, &origin)?;
        }
        // A file that says everything was written by lapwing.
        let said = |key: &String| matches!(layered.origins.get(key), Some(Origin::File(_)));
        let is_whole = source.run.is_some() || all_values(&defaults()).iter().all(said);
        if is_whole {
            for origin in layered.origins.values_mut() {
                *origin = Origin::Written(origin.to_string());
            }
        }
        let game = layered.game();
        for (key, value) in settings {
            layered.overlay("", nested(&key, value), &Origin::Setting)?;
        }
        if layered.game() != game && !layered.origins.contains_key("name") {
            let mut name = layered.game();
            if let Value::String(game) = &mut name {
                *game = GameName::from(&**game).short();
            }
            layered.table.insert("name".to_owned(), name);
        }
        let mut config = read(layered.table).map_err(|e| ConfigError::Syntax {
            origin: request.to_owned(),
            reason: e.message().to_owned(),
        })?;
        check(&config)?;
        config.model.source()?;
        config.policy.template_variables()?;
        config.resolve_game()?;
        let mut resolved = Resolved {
            config,
            origins: layered.origins,
            notes: Vec::new(),
            run: source.run,
        };
        if let Some(file) = source.bare.filter(|_| !is_whole) {
            let of_game =
                |preset: &&super::Preset| GameName::from(preset.name) == resolved.config.game.name;
            let preset = PRESETS.iter().find(of_game).unwrap_or(&PRESETS[0]).name;
            resolved.notes.push(format!(
                "{file} starts from the general defaults; base = \"{preset}\" would start from a preset"
            ));
        }
        let lr = resolved.origins.get("train.lr");
        let is_chosen = !matches!(lr, None | Some(Origin::Preset(_)));
        if resolved.config.train.weights == Weights::All && !is_chosen {
            let origin = lr.map_or("the default".to_owned(), ToString::to_string);
            resolved.notes.push(format!(
                "train.lr = {} ({origin}) was chosen for an adapter; all weights want a rate of their own, in large models about a tenth",
                resolved.config.train.lr
            ));
        }
        let unused = unused::notes(&resolved);
        resolved.notes.extend(unused);
        Ok(resolved)
    }

    /// The defaults, with every option of the default game.
    pub fn resolved_default() -> Config {
        let mut config = Config::default();
        let resolved = config.resolve_game();
        resolved.expect("the default game takes its defaults");
        config
    }

    /// With paths that hold from any working directory.
    #[must_use]
    pub fn absolute(mut self) -> Config {
        // Empty is no path.
        if let Ok(path) = std::path::absolute(&self.value.network)
            && let Some(path) = path.to_str()
        {
            self.value.network = path.to_owned();
        }
        let dirs = [&mut self.model.dir, &mut self.model.adapter];
        let dirs = dirs.into_iter().flatten();
        for path in dirs.chain(&mut self.policy.templates) {
            if let Ok(whole) = std::path::absolute(&*path) {
                *path = whole;
            }
        }
        self
    }

    /// As TOML, every key with the value in force. Loading it gives the same config.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a checked config holds plain values only")
    }

    /// Asks the game whether it takes these options, and notes the value of those left out.
    fn resolve_game(&mut self) -> Result<(), ConfigError> {
        self.game = GameConfig::of(&*self.game.scenario()?);
        for mix in &self.mix {
            mix.scenario(&self.game)?;
        }
        Ok(())
    }
}

fn defaults() -> Table {
    Table::try_from(Config::default()).expect("the defaults are plain values")
}

fn read(table: Table) -> Result<Config, toml::de::Error> {
    table.try_into()
}

/// The settings as keys and values, the game first: choosing a game drops the options of the one before.
fn ordered(settings: &[String], request: &str) -> Result<Vec<(String, Value)>, ConfigError> {
    let mut pairs = Vec::new();
    for setting in settings {
        let (key, value) = setting
            .split_once('=')
            .filter(|(key, _)| !key.trim().is_empty())
            .ok_or_else(|| ConfigError::Setting {
                given: setting.clone(),
                meant: meant(setting, request),
            })?;
        pairs.push((key.trim().to_owned(), value_of(value.trim())));
    }
    pairs.sort_by_key(|(key, _)| key != "game.name");
    Ok(pairs)
}

/// ` (did you mean ...?)` for a key without a value, where the value was taken for the name of a config.
fn meant(setting: &str, request: &str) -> String {
    let is_key = all_keys(&defaults()).iter().any(|key| key == setting);
    match is_key && ConfigRequest::read(request).is_err() {
        true => format!(" (did you mean `{setting}={request}`?)"),
        false => String::new(),
    }
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

/// Values, and where those come from that are not defaults.
struct Layered {
    table: Table,
    origins: BTreeMap<String, Origin>,
}

impl Layered {
    /// Writes the given values over those of the table, whose keys are all the keys there are.
    fn overlay(&mut self, section: &str, given: Table, origin: &Origin) -> Result<(), ConfigError> {
        for (name, value) in given {
            let key = if section.is_empty() {
                name
            } else {
                format!("{section}.{name}")
            };
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
                    return Err(refused(&key, origin, &other, "a table".to_owned()));
                }
                (Some(Value::Table(section)), other) => {
                    let keys = section.keys().cloned().collect::<Vec<_>>().join(", ");
                    let wanted = format!("a key in it; they are {keys}");
                    return Err(refused(&key, origin, &other, wanted));
                }
                (Some(_), value) => self.set(key, value, origin)?,
                (None, _) => return Err(unknown(&mut self.table, &key, origin)),
            }
        }
        Ok(())
    }

    /// Sets one value. The whole is read each time, so that a complaint is about this key.
    fn set(&mut self, key: String, value: Value, origin: &Origin) -> Result<(), ConfigError> {
        if key == "game.name" && self.game() != value {
            let options = find(&mut self.table, "game.options");
            options
                .and_then(Value::as_table_mut)
                .expect("a table")
                .clear();
            self.origins
                .retain(|key, _| !key.starts_with("game.options."));
        }
        *find(&mut self.table, &key).expect("known") = value.clone();
        match read(self.table.clone()) {
            Ok(_) => {
                self.origins.insert(key, origin.clone());
                Ok(())
            }
            Err(error) => Err(refused(&key, origin, &value, in_words(error.message()))),
        }
    }

    /// The game's name.
    fn game(&self) -> Value {
        self.table["game"]["name"].clone()
    }
}

fn find<'a>(root: &'a mut Table, key: &str) -> Option<&'a mut Value> {
    let mut names = key.split('.');
    let mut value = root.get_mut(names.next()?)?;
    for name in names {
        value = value.as_table_mut()?.get_mut(name)?;
    }
    Some(value)
}

fn refused(key: &str, origin: &Origin, found: &Value, wanted: String) -> ConfigError {
    ConfigError::Value {
        key: key.to_owned(),
        origin: origin.to_string(),
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
fn unknown(root: &mut Table, key: &str, origin: &Origin) -> ConfigError {
    let all = all_keys(root);
    // Someone who writes `lr` means `train.lr`; someone who writes `train.lrr` means it too.
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let alike = || all.iter().filter(|known| last(known) == last(key));
    let of_train = alike().find(|known| known.starts_with("train."));
    let suggestion = match of_train.or(alike().next()) {
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
        origin: origin.to_string(),
        suggestion,
        place,
        known,
    }
}

fn all_keys(root: &Table) -> Vec<String> {
    let mut keys = all_values(root);
    keys.extend(root.keys().filter(|key| root[*key].is_table()).cloned());
    keys.extend(OPEN.map(str::to_owned));
    keys
}

/// The keys of all that is not a table. (The two open tables are empty by default.)
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
