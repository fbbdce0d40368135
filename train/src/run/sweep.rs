//! Seeds times settings: which runs a sweep file asks for, and what their results say together.
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

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;
use toml::{Table, Value};

use crate::record::jsonl;
use crate::record::metrics::{Evaluation, PlayMetrics, Yardsticks};
use crate::record::stats::{interval, mean_and_deviation};
use crate::record::{Record, directory};
use crate::{Config, ConfigError};

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

/// How a run of a sweep ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The name of its setting.
    pub setting: String,
    /// The seed of the training.
    pub seed: u64,
    /// The first evaluation.
    pub before: PlayMetrics,
    /// The last evaluation.
    pub after: PlayMetrics,
    /// What they are held against.
    pub yardsticks: Option<Yardsticks>,
}

/// A number over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample (n - 1); 0 of one seed.
    pub std: f64,
    /// The 95 % bootstrap interval of the mean over seeds.
    pub interval: [f64; 2],
}

impl Spread {
    /// Of these values.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(values: &[f64]) -> Spread {
        let (mean, std) = mean_and_deviation(values);
        Spread {
            mean,
            std,
            interval: interval(values),
        }
    }
}

/// What the seeds of a setting say together, of their last evaluations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The setting.
    pub setting: String,
    /// The seeds that came to their end.
    pub seeds: Vec<u64>,
    /// Success rate.
    pub success: Spread,
    /// Mean return.
    #[serde(rename = "return")]
    pub mean_return: Spread,
    /// Mean return less that of the first setting, over the seeds that both have; none for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Spread>,
}

/// The results of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// A row for each setting that has a result.
    pub rows: Vec<Row>,
    /// Every run that came to its end.
    pub runs: Vec<Outcome>,
    /// Runs that did not: setting and seed.
    pub missing: Vec<(String, u64)>,
}

impl Results {
    /// Of what is there by now.
    pub fn of(sweep: &Sweep, directory: &Path) -> Results {
        let (mut runs, mut missing) = (Vec::new(), Vec::new());
        for cell in &sweep.cells {
            match cell.outcome(directory) {
                Some(outcome) => runs.push(outcome),
                None => missing.push((cell.setting.clone(), cell.seed)),
            }
        }
        let mut settings: Vec<&str> = sweep.cells.iter().map(|cell| &*cell.setting).collect();
        settings.dedup();
        let of = |setting: &str| -> Vec<&Outcome> {
            runs.iter().filter(|run| run.setting == setting).collect()
        };
        let first = of(settings[0]);
        let mut rows = Vec::new();
        for setting in &settings {
            let own = of(setting);
            if own.is_empty() {
                continue;
            }
            let over = |value: fn(&PlayMetrics) -> f64| {
                Spread::of(&own.iter().map(|run| value(&run.after)).collect::<Vec<_>>())
            };
            let pairs: Vec<f64> = own
                .iter()
                .filter_map(|run| {
                    let other = first.iter().find(|other| other.seed == run.seed)?;
                    Some(run.after.return_mean - other.after.return_mean)
                })
                .collect();
            let is_first = *setting == settings[0];
            rows.push(Row {
                setting: (*setting).to_owned(),
                seeds: own.iter().map(|run| run.seed).collect(),
                success: over(|play| play.success_rate),
                mean_return: over(|play| play.return_mean),
                difference: (!is_first && !pairs.is_empty()).then(|| Spread::of(&pairs)),
            });
        }
        Results {
            rows,
            runs,
            missing,
        }
    }

    /// As a table in Markdown, with a line on how to read it.
    pub fn markdown(&self) -> String {
        let spread = |s: &Spread, sign: bool| {
            let [low, high] = s.interval;
            let mean = if sign {
                format!("{:+.3}", s.mean)
            } else {
                format!("{:.3}", s.mean)
            };
            format!("{mean} ± {:.3} [{low:.3}, {high:.3}]", s.std)
        };
        let mut table = vec![
            [
                "setting",
                "seeds",
                "success",
                "return",
                "return less the first's",
            ]
            .map(str::to_owned),
        ];
        for row in &self.rows {
            let difference = row.difference.as_ref();
            table.push([
                row.setting.clone(),
                row.seeds.len().to_string(),
                spread(&row.success, false),
                spread(&row.mean_return, false),
                difference.map_or("-".to_owned(), |difference| spread(difference, true)),
            ]);
        }
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
        let line = |cells: &[String]| {
            let padded = cells
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!(" {cell:width$} "));
            format!("|{}|\n", padded.collect::<Vec<_>>().join("|"))
        };
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let mut text = line(&table[0]) + &line(&rule);
        table[1..].iter().for_each(|row| text += &line(row));
        text += "\nOf the last evaluation: mean over seeds ± standard deviation [95 % bootstrap interval of the mean over \
                 seeds]; differences are paired by seed.\n";
        if !self.missing.is_empty() {
            let missing = self
                .missing
                .iter()
                .map(|(setting, seed)| format!("{setting} seed {seed}"));
            text += &format!(
                "\nWithout a result: {}.\n",
                missing.collect::<Vec<_>>().join(", ")
            );
        }
        text
    }

    /// A line for each run.
    pub fn csv(&self) -> String {
        let mut text = "setting,seed,success_before,return_before,success,return,valid_action_rate,episode_length\n".to_owned();
        for run in &self.runs {
            let (before, after) = (&run.before, &run.after);
            let numbers = [
                before.success_rate,
                before.return_mean,
                after.success_rate,
                after.return_mean,
                after.valid_action_rate,
                after.episode_length_mean,
            ];
            let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
            text += &format!("{},{},{}\n", run.setting, run.seed, numbers.join(","));
        }
        text
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
