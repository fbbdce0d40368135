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
//! ```

mod results;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::record::jsonl;
use crate::record::metrics::Evaluation;
use crate::record::{Record, directory};
use crate::{Config, ConfigError};

pub use results::{Outcome, Results, Row, Spread};

/// What a sweep file asks for.
#[derive(Debug)]
pub struct Sweep {
    /// Names the directory: `name` in the file, or the stem of its name.
    pub name: String,
    /// The runs, those of a setting together.
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
const KEYS: [&str; 6] = ["name", "base", "seeds", "set", "settings", "grid"];

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
        let mut settings =
            named(&table("settings")?).map_err(|(key, problem)| wrong(&key, problem))?;
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
            for &seed in &seeds {
                let set = [&set[..], &[format!("train.seed={seed}")]].concat();
                let config = Config::load(&base, &set).map_err(|error| SweepError::Config {
                    path: path.to_owned(),
                    setting: setting.clone(),
                    error: Box::new(error),
                })?;
                cells.push(Cell {
                    setting: setting.clone(),
                    seed,
                    base: base.clone(),
                    set,
                    config: config.absolute(),
                });
            }
        }
        Ok(Sweep { name, cells })
    }
}

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

/// The settings by their names, in the order of the file.
fn named(table: &Table) -> Result<Named, (String, &'static str)> {
    let one = |(name, value): (&String, &Value)| match value {
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
        let records = jsonl::read(&directory::metrics(&self.directory(sweep))).ok()?;
        let mut yardsticks = None;
        let mut evaluations: Vec<Evaluation> = Vec::new();
        for record in records {
            match record {
                Record::Yardsticks(found) => yardsticks = Some(found),
                Record::Evaluation(evaluation) => evaluations.push(evaluation),
                _ => (),
            }
        }
        let last = evaluations.last()?;
        (last.step == self.config.train.steps).then(|| Outcome {
            setting: self.setting.clone(),
            seed: self.seed,
            before: evaluations[0].play.clone(),
            after: last.play.clone(),
            yardsticks,
        })
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::record::metrics::PlayMetrics;

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
        let plain = load("seeds = [3, 9]").unwrap();
        let cells: Vec<_> = plain.cells.iter().map(|c| (&*c.setting, c.seed)).collect();
        assert_eq!(cells, [("base", 3), ("base", 9)]);
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

    fn outcome(setting: &str, seed: u64, value: f64) -> Outcome {
        let play = |value| PlayMetrics {
            episodes: 50,
            success_rate: value,
            return_mean: value,
            valid_action_rate: 1.0,
            episode_length_mean: 6.5,
            ..PlayMetrics::default()
        };
        Outcome {
            setting: setting.to_owned(),
            seed,
            before: play(0.125),
            after: play(value),
            yardsticks: None,
        }
    }

    /// Settings differ by 0.25 in every seed, which differ among each other by more: paired, the difference is sure.
    #[test]
    fn results_are_means_with_intervals_and_paired_differences() {
        let home = tempfile::tempdir().unwrap();
        let sweep =
            load("seeds = 4\nset.train.steps = 3\n[settings.a]\n[settings.b]\ntrain.lr = 0.5")
                .unwrap();
        let score =
            |cell: &Cell| 0.125 * cell.seed as f64 + if cell.setting == "a" { 0.0 } else { 0.25 };
        for cell in &sweep.cells {
            // One came to nothing, and one is at work.
            let step = match (&*cell.setting, cell.seed) {
                ("b", 4) => continue,
                ("b", 3) => 2,
                _ => 3,
            };
            let dir = cell.directory(home.path());
            std::fs::create_dir_all(&dir).unwrap();
            let mut file = jsonl::Jsonl::open(&directory::metrics(&dir)).unwrap();
            for (step, play) in [(0, 0.125), (step, score(cell))] {
                let play = outcome("", 0, play).after;
                let evaluation = Evaluation {
                    step,
                    play,
                    ..Evaluation::default()
                };
                file.write(&Record::Evaluation(evaluation)).unwrap();
            }
        }
        let results = Results::of(&sweep, home.path());
        let wanted: Vec<Outcome> = sweep
            .cells
            .iter()
            .filter(|cell| cell.setting == "a" || cell.seed < 3)
            .map(|cell| outcome(&cell.setting, cell.seed, score(cell)))
            .collect();
        assert_eq!(results.runs, wanted);
        assert_eq!(results.missing, [("b".to_owned(), 3), ("b".to_owned(), 4)]);
        assert_snapshot!(results.markdown() + "\n" + &results.csv());
    }
}
