//! Names of configs: a preset, a game or a variant of one, a file with its bases, or a run.

use std::fs;
use std::path::{Path, PathBuf};

use lapwing_model::read_text;
use toml::{Table, Value};

use lapwing_learn::config::{Optimiser, TrainConfig};

use super::ConfigError;
use super::origin::{Origin, nested};
use lapwing_play::external::GameName;

/// A config that is built into the program.
#[derive(Debug)]
pub struct Preset {
    /// Its name.
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

/// All presets, the default first.
pub static PRESETS: &[Preset] = presets![
    "frozen-lake"
    "frozen-lake-slippery"
    "frozen-lake-large"
    "snake"
    "snake-imitation"
    "frozen-lake-paper"
    "snake-paper"
    "frozen-lake-small"
    "snake-small"
    "rooms-small"
    "frozen-lake-dqn"
    "frozen-lake-pqn"
    "frozen-lake-slippery-pqn"
    "snake-dqn"
    "snake-pqn"
];

/// The maximum number of bytes of a config file. One with every key and its reason has some ten thousand.
const LONGEST: u64 = 1 << 20;
/// The maximum number of files in a chain of bases.
const DEEPEST: usize = 8;

/// A named config, as tables.
#[derive(Debug)]
pub(super) struct ConfigRequest {
    /// the name of the run
    pub(crate) name: String,
    /// the tables, from the innermost base to the named config
    pub(crate) layers: Vec<(Origin, Table)>,
    /// the directory, if the name is that of a run
    pub(crate) run: Option<PathBuf>,
    /// the innermost file, if it has no base
    pub(crate) bare: Option<String>,
}

/// The kind of a directory or file, by the names of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// It does not exist.
    Nothing,
    /// A run directory: it contains `config.toml`.
    Run,
    /// A PEFT adapter: it contains `adapter_config.json`.
    Adapter,
    /// A model: it contains `config.json`.
    Model,
    /// Another directory.
    Directory,
    /// Not a directory.
    File,
}

impl PathKind {
    /// Checks which files exist.
    pub fn of(path: &Path) -> PathKind {
        let holds = |name: &str| path.join(name).exists();
        match path {
            path if !path.exists() => PathKind::Nothing,
            path if !path.is_dir() => PathKind::File,
            _ if holds("config.toml") => PathKind::Run,
            _ if holds("adapter_config.json") => PathKind::Adapter,
            _ if holds("config.json") => PathKind::Model,
            _ => PathKind::Directory,
        }
    }
}

impl ConfigRequest {
    /// Finds and reads the named config.
    pub(crate) fn read(request: &str) -> Result<ConfigRequest, ConfigError> {
        let of = |name: &str, layers: ConfigLayers| ConfigRequest {
            name: name.to_owned(),
            layers,
            run: None,
            bare: None,
        };
        let argument = Origin::Derived("the argument");
        let of_game = |name: &str| vec![(argument.clone(), nested("game.name", name.into()))];
        if let Some(preset) = preset(request) {
            return Ok(of(request, vec![preset.layer()?]));
        }
        if let Ok(game) = lapwing_env::find(request) {
            return Ok(of(request, of_game(game.name)));
        }
        if let Some(layers) = variant(request)? {
            return Ok(of(request, layers));
        }
        let game = GameName::from(request);
        if game.is_external() {
            return Ok(of(&game.short(), of_game(request)));
        }
        let path = Path::new(request);
        if request.ends_with(".toml") {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let (layers, bare) = chain(path)?;
            return Ok(ConfigRequest {
                bare,
                ..of(&stem, layers)
            });
        }
        if PathKind::of(path) != PathKind::Run {
            return Err(nothing(request));
        }
        let (layers, _) = chain(&path.join("config.toml"))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(ConfigRequest {
            run: Some(path.to_owned()),
            ..of(&name, layers)
        })
    }
}

/// Returns the error for a name that is none of these.
fn nothing(request: &str) -> ConfigError {
    let looks_like_a_path = request.contains(['/', '\\']);
    let is_command = request.contains(' ') && !looks_like_a_path || request.ends_with(".py");
    let form = GameName::from(request).external_form();
    if let Some(form) = form.filter(|_| is_command || request.contains("://")) {
        return ConfigError::Invalid(format!("unknown preset `{request}`; wanted {form}"));
    }
    let path = Path::new(request);
    let (is, cure) = match PathKind::of(path) {
        PathKind::Model | PathKind::Adapter | PathKind::Directory => {
            ("is not a run", &*crate::runs::wanted(path))
        }
        PathKind::File => (
            "is not a config",
            "wanted a file that ends in .toml, or the directory of a run",
        ),
        _ if looks_like_a_path => (
            "does not exist",
            "wanted a preset, a file that ends in .toml, or the directory of a run",
        ),
        _ => return unknown(request),
    };
    ConfigError::Invalid(format!("{request} {is}: {cure}"))
}

/// Returns a variant of a game: its options, with all other values of the game's preset, since prompts and training
/// suit both. Without a preset the general defaults apply.
fn variant(name: &str) -> Result<Option<ConfigLayers>, ConfigError> {
    let Ok((kind, options)) = lapwing_env::find_variant(name) else {
        return Ok(None);
    };
    let mut layers = Vec::new();
    if let Some(preset) = preset(kind.name) {
        let (origin, mut table) = preset.layer()?;
        table.remove("game");
        layers.push((origin, table));
    }
    let options = Value::try_from(options).expect("options of a variant are no nulls");
    let game = [("name", kind.name.into()), ("options", options)];
    let game = Table::from_iter(game.map(|(key, value)| (key.to_owned(), value)));
    let table = nested("game", game.into());
    layers.push((Origin::Variant(name.to_owned()), table));
    Ok(Some(layers))
}

fn unknown(name: &str) -> ConfigError {
    let games = lapwing_env::GAMES.iter();
    let variants = games.clone().flat_map(|game| game.variants);
    let others = games.map(|game| game.name);
    let others = others.filter(|game| preset(game).is_none());
    let told: Vec<&str> = names().chain(others).collect();
    let known = told.iter().copied().chain(variants.map(|it| it.name));
    let known: Vec<String> = known.map(str::to_owned).collect();
    let file = format!("{name}.toml");
    let nearest = match Path::new(&file).is_file() {
        true => format!(" (did you mean `{file}`?)"),
        false => lapwing_env::suggestion(name, &known),
    };
    ConfigError::Invalid(format!(
        "unknown preset `{name}`{nearest}; the presets and games are {}; lapwing games lists variants, and the name of a file \
         ends in .toml",
        told.join(", ")
    ))
}

fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name)
}

pub(super) fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

impl Preset {
    fn layer(&self) -> Result<(Origin, Table), ConfigError> {
        let origin = Origin::Preset(self.name.to_owned());
        let table = parse(self.text, &origin.to_string())?;
        Ok((origin, table))
    }

    /// Returns the optimiser that its learning rate is for.
    pub(super) fn optimiser(&self) -> Optimiser {
        let (_, table) = self.layer().expect("a preset is valid");
        let value = table.get("train").and_then(|it| it.get("optimiser"));
        value.map_or(TrainConfig::default().optimiser, |value| {
            value.clone().try_into().expect("a preset is valid")
        })
    }
}

type ConfigLayers = Vec<(Origin, Table)>;

/// Returns a file and its bases, the innermost first; and the innermost file, if it has no base.
fn chain(path: &Path) -> Result<(ConfigLayers, Option<String>), ConfigError> {
    let mut layers = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    let mut path = path.to_owned();
    loop {
        let origin = path.display().to_string();
        let mut table = parse(&read(&path)?, &origin)?;
        seen.push(fs::canonicalize(&path).unwrap_or_else(|_| path.clone()));
        let base = table.remove("base");
        if !layers.is_empty() {
            // A file with a base has its own name.
            table.remove("name");
        }
        layers.insert(0, (Origin::File(origin.clone()), table));
        let Some(base) = base else {
            return Ok((layers, Some(origin)));
        };
        let wrong = |wanted: &str| ConfigError::value("base", &origin, &base, wanted);
        let Value::String(name) = &base else {
            return Err(wrong(
                "the name of a preset, or of a file that ends in .toml",
            ));
        };
        if let Some(preset) = preset(name) {
            layers.insert(0, preset.layer()?);
            return Ok((layers, None));
        }
        if !name.ends_with(".toml") {
            let known: Vec<String> = names().map(str::to_owned).collect();
            let nearest = lapwing_env::suggestion(name, &known);
            let presets = known.join(", ");
            return Err(wrong(&format!(
                "a preset ({presets}), or a file that ends in .toml{nearest}"
            )));
        }
        path = path.parent().unwrap_or(Path::new("")).join(name);
        if fs::canonicalize(&path).is_ok_and(|path| seen.contains(&path)) {
            return Err(wrong("a file that is not based on this one"));
        }
        if seen.len() == DEEPEST {
            return Err(wrong(&format!(
                "an end: {DEEPEST} files are based on each other already"
            )));
        }
    }
}

fn parse(text: &str, origin: &str) -> Result<Table, ConfigError> {
    text.parse()
        .map_err(|e| ConfigError::syntax(origin, text, &e))
}

fn read(path: &Path) -> Result<String, ConfigError> {
    read_text(path, LONGEST).map_err(ConfigError::Unreadable)
}
