//! Seeds times settings: which runs a sweep file asks for.
//!
//! ```toml
//! base = "frozen-lake"            # a preset or a config file, relative to this one
//! seeds = 8                       # seeds 1 to 8, or a list
//!
//! [set]                           # what all runs have in common, beside the base
//! train.steps = 50
//! eval.episodes = 50
//!
//! [settings.aaw]                  # a name for each setting, and what is special in it
//! train.sampling = "aaw"
//!
//! [settings.uniform]
//! train.sampling = "uniform"
//!
//! [grid]                          # or lists of values: every combination is a setting
//! "train.lr" = [1e-4, 5e-4]
//!
//! [compare]                       # what the results tell beside the scores
//! reach = [0.8]                   # how soon the evaluations reach these scores
//! metrics = ["entropy"]           # means of what training steps measure
//! probes = ["swapped"]            # who reads changed instructions, before training and after
//! ```

mod compare;
mod figure;
mod outcome;
mod probes;
mod results;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::de::DeTable;
use toml::{Table, Value};

use lapwing_learn::config::LearnerKind;
use lapwing_play::config::Game;
use lapwing_train::record::directory;
use lapwing_train::{Config, ConfigError};

pub use compare::Compare;
pub use outcome::{Along, Outcome, Point};
pub use probes::{Answer, Probed};
pub use results::{Arrival, Reached, Results, Row, Score, Spread, Words};

/// What a sweep file asks for.
#[derive(Debug)]
pub struct Sweep {
    /// Names the directory: `name` in the file, or the stem of its name.
    pub name: String,
    /// The seeds of each setting, in the order of the file.
    pub seeds: Vec<u64>,
    /// What the results tell beside the scores.
    pub compare: Compare,
    /// The runs, those of a setting together, settings in the order of the file.
    pub cells: Vec<Cell>,
}

/// One run of a sweep.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The name of its setting.
    pub setting: String,
    /// The seed of the training.
    pub seed: u64,
    /// The preset or file that its config is made from.
    pub base: String,
    /// What is set on top, as for `--set`.
    pub set: Vec<String>,
    /// What comes of that.
    pub config: Config,
}

/// A sweep that cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The file cannot be read, or is no TOML.
    #[error("cannot read the sweep {}: {reason}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Something in it is not as it should be.
    #[error("{}: `{key}`: {problem}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A run that it asks for cannot be.
    #[error("{}: setting `{setting}`: {error}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The setting.
        setting: String,
        /// Why.
        error: Box<ConfigError>,
    },
}

/// A sweep of more runs is a mistake in typing.
const MOST: usize = 10_000;
const KEYS: [&str; 7] = [
    "name", "base", "seeds", "set", "settings", "grid", "compare",
];

impl Sweep {
    /// Reads a sweep file and all of its configs, so that the last of them does not fail after hours.
    ///
    /// # Errors
    /// What is wrong with which key or setting.
    pub fn load(path: &Path) -> Result<Sweep, SweepError> {
        let unreadable = |reason: String| SweepError::Unreadable {
            path: path.to_owned(),
            reason,
        };
        let text = lapwing_model::read_text(path, 1 << 20).map_err(|e| {
            // It names the file, and so do we.
            let text = e.to_string();
            let name = format!("{}: ", path.display());
            unreadable(text.strip_prefix(&name).unwrap_or(&text).to_owned())
        })?;
        let file: Table = text
            .parse()
            .map_err(|e: toml::de::Error| unreadable(e.to_string()))?;
        let places = places(&text, "settings");
        let wrong = |key: &str, problem: &str| SweepError::Key {
            path: path.to_owned(),
            key: key.to_owned(),
            problem: problem.to_owned(),
        };
        if let Some(key) = file.keys().find(|key| !KEYS.contains(&&***key)) {
            let problem = format!("no key of a sweep; they are {}", KEYS.join(", "));
            return Err(wrong(key, &problem));
        }
        let text = |key: &str| match file.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(wrong(key, "wanted a text")),
        };
        let table = |key: &str| match file.get(key) {
            None => Ok(Table::new()),
            Some(Value::Table(table)) => Ok(table.clone()),
            Some(_) => Err(wrong(key, "wanted a table")),
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = text("name")?.unwrap_or(stem.into_owned());
        if !is_name(&name) {
            return Err(wrong("name", NAMES));
        }
        let base = text("base")?.unwrap_or("frozen-lake".to_owned());
        let seeds = seeds(file.get("seeds")).ok_or_else(|| {
            wrong(
                "seeds",
                "wanted how many, such as 8, or a list of different whole numbers, 0 or more",
            )
        })?;
        let common = flat(&table("set")?);
        let compare = Compare::read(&table("compare")?);
        let compare = compare.map_err(|(key, problem)| wrong(&key, &problem))?;
        let mut settings =
            named(&table("settings")?).map_err(|(key, problem)| wrong(&key, problem))?;
        settings.sort_by_key(|(name, _)| places.get(name));
        if settings.is_empty() {
            settings.push((String::new(), Vec::new()));
        }
        for (key, value) in flat(&table("grid")?) {
            let Value::Array(values) = value else {
                return Err(wrong(&format!("grid.{key}"), "wanted a list of values"));
            };
            let one = |(name, set): &(String, Vec<(String, Value)>), value: &Value| {
                let last = key.rsplit('.').next().unwrap_or_default();
                let words = match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let own = format!("{last}-{words}");
                let name = if name.is_empty() {
                    own
                } else {
                    format!("{name}_{own}")
                };
                (name, [&set[..], &[(key.clone(), value.clone())]].concat())
            };
            settings = settings
                .iter()
                .flat_map(|setting| {
                    values
                        .iter()
                        .map(|value| one(setting, value))
                        .collect::<Vec<_>>()
                })
                .collect();
            if settings.is_empty() || settings.len() * seeds.len() > MOST {
                let problem = format!("wanted from one to {MOST} runs in all");
                return Err(wrong(&format!("grid.{key}"), &problem));
            }
        }
        let mut cells = Vec::new();
        let mut names = BTreeSet::new();
        for (setting, own) in settings {
            let setting = if setting.is_empty() {
                "base".to_owned()
            } else {
                setting
            };
            if !is_name(&setting) || !names.insert(setting.clone()) {
                return Err(wrong(&format!("settings.{setting}"), NAMES));
            }
            let mut base = base.clone();
            let mut set = Vec::new();
            for (key, value) in common.iter().chain(&own) {
                match (&**key, value) {
                    ("base", Value::String(other)) => base.clone_from(other),
                    _ => set.push(format!("{key}={value}")),
                }
            }
            // A file is meant beside the one that names it.
            if base.ends_with(".toml") {
                let beside = path.parent().unwrap_or(Path::new("")).join(&base);
                base = beside.to_string_lossy().into_owned();
            }
            let impossible = |error| SweepError::Config {
                path: path.to_owned(),
                setting: setting.clone(),
                error: Box::new(error),
            };
            for &seed in &seeds {
                let set = [&set[..], &[format!("train.seed={seed}")]].concat();
                let config = Config::load(&base, &set).map_err(impossible)?;
                if seed == seeds[0] && !compare.probes.is_empty() {
                    if config.learner != LearnerKind::MsGrpo {
                        return Err(wrong("compare.probes", NOT_READ));
                    }
                    for probe in &compare.probes {
                        let probe = probe.clone();
                        let game = config.game.clone();
                        let probed = Game { probe, ..game }.scenario();
                        probed.map_err(|error| impossible(error.into()))?;
                    }
                }
                cells.push(Cell {
                    setting: setting.clone(),
                    seed,
                    base: base.clone(),
                    set,
                    config: config.absolute(),
                });
            }
        }
        Ok(Sweep {
            name,
            seeds,
            compare,
            cells,
        })
    }

    /// The settings, in the order of the file.
    pub fn settings(&self) -> Vec<&str> {
        let mut settings: Vec<&str> = self.cells.iter().map(|cell| &*cell.setting).collect();
        settings.dedup();
        settings
    }

    /// The runs in the order in which they are made: all settings with the first seed, then all with the second. A sweep
    /// that is stopped half-way can be read so, since its settings have the same seeds; and what else the machine does,
    /// which changes over hours, slows one setting no more than another.
    pub fn in_order(&self) -> Vec<&Cell> {
        let of = |seed: &u64| {
            let seed = *seed;
            self.cells.iter().filter(move |cell| cell.seed == seed)
        };
        self.seeds.iter().flat_map(of).collect()
    }
}

const NOT_READ: &str =
    "a network of dqn or pqn reads no instructions: put its settings into a sweep of their own";
const CUT: &str = "a name with a point in it needs quotes, as in [settings.\"lambda-0.9\"]";
const NAMES: &str = "wanted a name of its own, of letters, digits, dots, dashes and underscores";

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "._-+".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_part)
}

fn seeds(value: Option<&Value>) -> Option<Vec<u64>> {
    let seeds: Vec<u64> = match value {
        None => vec![1],
        Some(Value::Integer(count)) => (1..=u64::try_from(*count).ok()?).take(MOST).collect(),
        Some(Value::Array(seeds)) => {
            let seed = |seed: &Value| u64::try_from(seed.as_integer()?).ok();
            seeds.iter().map(seed).collect::<Option<_>>()?
        }
        Some(_) => return None,
    };
    let different: BTreeSet<&u64> = seeds.iter().collect();
    (!seeds.is_empty() && different.len() == seeds.len()).then_some(seeds)
}

type Named = Vec<(String, Vec<(String, Value)>)>;

/// Where in the text the keys of a table begin; a table that is read does not know their order.
fn places(text: &str, table: &str) -> BTreeMap<String, usize> {
    let file = DeTable::parse(text).ok();
    let keys = file
        .as_ref()
        .and_then(|file| file.get_ref().get(table)?.get_ref().as_table());
    let keys = keys.into_iter().flatten();
    keys.map(|(key, _)| (key.get_ref().to_string(), key.span().start))
        .collect()
}

/// The settings by their names.
fn named(table: &Table) -> Result<Named, (String, &'static str)> {
    let is_cut = |own: &Table| {
        own.keys()
            .any(|key| key.chars().all(|c| c.is_ascii_digit()))
    };
    let one = |(name, value): (&String, &Value)| match value {
        Value::Table(own) if is_cut(own) => Err((format!("settings.{name}"), CUT)),
        Value::Table(own) => Ok((name.clone(), flat(own))),
        _ => Err((format!("settings.{name}"), "wanted a table")),
    };
    table.iter().map(one).collect()
}

/// Dotted keys with their values.
fn flat(table: &Table) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (name, value) in table {
        match value {
            Value::Table(inner) => {
                let under = |(key, value)| (format!("{name}.{key}"), value);
                all.extend(flat(inner).into_iter().map(under));
            }
            other => all.push((name.clone(), other.clone())),
        }
    }
    all
}

impl Cell {
    /// Where its run is kept in the sweep's directory.
    pub fn directory(&self, sweep: &Path) -> PathBuf {
        sweep
            .join(&self.setting)
            .join(format!("seed-{}", self.seed))
    }

    /// How it ended, if its last step is done and examined.
    pub fn outcome(&self, sweep: &Path) -> Option<Outcome> {
        let metrics = directory::metrics(&self.directory(sweep));
        let last_step = self.config.train.steps;
        let outcome = Outcome::read(&metrics, &self.setting, self.seed, last_step)?;
        Some(Outcome {
            probes: probes::read(&self.probes(sweep)),
            ..outcome
        })
    }

    /// Whether it ended, and was asked all that the sweep compares.
    pub fn is_done(&self, sweep: &Path, compare: &Compare) -> bool {
        let outcome = self.outcome(sweep);
        let asked = |outcome: Outcome| {
            let mut wanted = compare.probes.iter();
            wanted.all(|probe| outcome.probes.contains_key(probe))
        };
        outcome.is_some_and(asked)
    }

    /// Where what it made of probes is kept, as `lapwing probe --json` prints it.
    pub fn probes(&self, sweep: &Path) -> PathBuf {
        self.directory(sweep).with_extension("probes.json")
    }

    /// The training steps that it has told of.
    pub fn steps_done(&self, sweep: &Path) -> usize {
        outcome::last_step(&directory::metrics(&self.directory(sweep)))
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn load(text: &str) -> Result<Sweep, String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("trial.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::write(home.path().join("mine.toml"), "[train]\nsteps = 7\n").unwrap();
        let told = |e: SweepError| e.to_string().replace(home.path().to_str().unwrap(), "DIR");
        Sweep::load(&path).map_err(told)
    }

    #[test]
    fn settings_grids_and_seeds_are_runs() {
        let text = "base = \"frozen-lake\"\nseeds = 2\nset.train.steps = 5\n\
                    [settings.aaw]\n[settings.even]\ntrain.sampling = \"uniform\"\n\
                    [settings.mine]\nbase = \"mine.toml\"\n[grid]\n\"train.lr\" = [1e-4, 0.5]\n";
        let sweep = load(text).unwrap();
        assert_eq!(sweep.name, "trial");
        let told: Vec<String> = sweep
            .cells
            .iter()
            .filter(|cell| cell.seed == 2)
            .map(|cell| {
                let train = &cell.config.train;
                let (sampling, lr, steps) = (train.sampling, train.lr, train.steps);
                assert_eq!((train.seed, steps), (2, 5));
                format!("{}: {sampling:?} {lr}", cell.setting)
            })
            .collect();
        assert_eq!(sweep.cells.len(), 12);
        assert_snapshot!(told.join("\n"), @"
        aaw_lr-0.0001: Aaw 0.0001
        aaw_lr-0.5: Aaw 0.5
        even_lr-0.0001: Uniform 0.0001
        even_lr-0.5: Uniform 0.5
        mine_lr-0.0001: Aaw 0.0001
        mine_lr-0.5: Aaw 0.5
        ");
        // The first of the file is what the others are held against, whatever its name.
        let text = "[settings.z]\n[settings]\nb.train.lr = 0.5\n[settings.a]\nset = 1";
        let text = text.replace("set = 1", "train.lr = 0.25");
        assert_eq!(load(&text).unwrap().settings(), ["z", "b", "a"]);
        let plain = load("seeds = [3, 9]").unwrap();
        let cells: Vec<_> = plain.cells.iter().map(|c| (&*c.setting, c.seed)).collect();
        assert_eq!(cells, [("base", 3), ("base", 9)]);
    }

    #[test]
    fn all_settings_have_a_seed_before_one_has_the_next() {
        let sweep = load("seeds = [7, 2]\n[settings.b]\n[settings.a]").unwrap();
        let order = sweep.in_order().into_iter();
        let order: Vec<_> = order.map(|cell| (&*cell.setting, cell.seed)).collect();
        assert_eq!(order, [("b", 7), ("a", 7), ("b", 2), ("a", 2)]);
    }

    #[test]
    fn what_is_compared_is_read() {
        let compare = |text: &str| load(&format!("[compare]\n{text}")).map(|sweep| sweep.compare);
        assert_eq!(load("").unwrap().compare, Compare::default());
        let wanted = Compare {
            reach: vec![0.5, 1.0],
            metrics: vec!["entropy".to_owned(), "kl".to_owned()],
            probes: vec!["swapped".to_owned()],
        };
        let text = "reach = [0.5, 1]\nmetrics = [\"entropy\", \"kl\"]\nprobes = [\"swapped\"]";
        assert_eq!(compare(text), Ok(wanted));
        let told = [
            "reach = 0.5",
            "reach = []",
            "reach = [nan]",
            "reach = [1, 1.0]",
            "reach = [\"high\"]",
            "metrics = [\"entropy\", \"entropy\"]",
            "metrics = [\"entrop\"]",
            "metrics = [\"step\"]",
            "probes = []",
            "probes = [\"swaped\"]",
            "reached = [0.5]",
        ]
        .map(|text| compare(text).unwrap_err());
        assert_snapshot!(told.join("\n"));
        assert_eq!(
            load("compare = 3").unwrap_err(),
            "DIR/trial.toml: `compare`: wanted a table"
        );
    }

    /// Those of `docs/experiments` can be made again.
    #[test]
    fn experiments_are_sweeps_of_eight_seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
        let files = std::fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let files: Vec<PathBuf> = files
            .filter(|file| file.extension() == Some("toml".as_ref()))
            .collect();
        assert!(files.len() >= 6);
        for file in files {
            let sweep = Sweep::load(&file).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(
                sweep.seeds,
                (1..=8).collect::<Vec<u64>>(),
                "{}",
                file.display()
            );
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let told = [
            "odd",
            "seed = 3",
            "seeds = 0",
            "seeds = [1, 1]",
            "seeds = -1",
            "base = 3",
            "base = \"frozen-lak\"",
            "name = \"../x\"",
            "settings = 3",
            "settings.a = 3",
            "settings.\"a/b\".train.lr = 1.0",
            "settings.a.train.lrr = 1.0",
            "grid.train.lr = 1.0",
            "grid.train.lr = []",
            "grid.train.lr = [1.0, 1.0]",
            "seeds = 10000\ngrid.train.lr = [1.0, 2.0]",
        ]
        .map(|text| load(text).unwrap_err());
        assert_snapshot!(told.join("\n"));
    }
}
