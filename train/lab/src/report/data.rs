//! What a page shows, read from the directories of its runs. The fields are those that `page.js` reads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::episodes::{Episodes, Limits};
use lapwing_learn::metrics::numbers;
use lapwing_play::metrics::Yardsticks;
use lapwing_train::config::PRESETS;
use lapwing_train::record::metrics::{Evaluation, Warning};
use lapwing_train::record::{Record, RecordError, directory};
use lapwing_train::{Config, Error};

/// Points of a curve; longer curves are made of the means of neighbours.
const MOST_POINTS: usize = 400;

/// Keys of the config that make no other experiment: repetitions are told apart by the seed, and what is written down changes
/// nothing that is measured.
fn is_repetition(key: &str) -> bool {
    ["name", "train.seed"].contains(&key)
        || key.starts_with("record.")
        || key.starts_with("checkpoint.")
}

/// All of it.
#[derive(Debug, Serialize)]
pub struct Page {
    /// what the browser's tab says
    pub title: String,
    /// runs that differ in nothing but the seed are one group
    pub groups: Vec<Group>,
    /// in the order asked for
    pub runs: Vec<Run>,
    /// training steps that make one point of a curve
    pub bucket: usize,
}

/// Runs of one config.
#[derive(Debug, Serialize)]
pub struct Group {
    /// the config's name, and what makes it another than those of the other groups
    pub label: String,
    /// places in `Page::runs`
    pub runs: Vec<usize>,
    /// over training steps
    pub train: Curves,
    /// over evaluations
    pub eval: Curves,
}

/// Metrics by name, over the same steps.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Curves {
    /// the steps
    pub x: Vec<f64>,
    /// a value for each of them
    pub metrics: BTreeMap<String, Curve>,
}

/// One metric; nothing where nothing was measured.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Curve {
    /// the mean over the seeds
    pub mean: Vec<Option<f64>>,
    /// the lowest of the seeds; left out if there is one seed
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub low: Vec<Option<f64>>,
    /// the highest of the seeds
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub high: Vec<Option<f64>>,
}

/// One run.
#[derive(Debug, Serialize)]
pub struct Run {
    /// its directory
    pub name: String,
    /// the preset or file
    pub config_name: String,
    /// as text, since it may have more digits than JavaScript keeps
    pub seed: String,
    pub game: String,
    pub steps_done: usize,
    pub steps_total: usize,
    /// somebody writes into it right now
    pub running: bool,
    pub yardsticks: Option<Yardsticks>,
    pub evaluations: Vec<Evaluation>,
    pub warnings: Vec<Warning>,
    pub sessions: Vec<directory::Session>,
    /// seconds by phase, over all steps
    pub seconds: Vec<(&'static str, f64)>,
    pub tokens_played: u64,
    pub tokens_computed: u64,
    /// what `config` is held against
    pub base: String,
    /// every key with its value and the base's
    pub config: Vec<(String, String, String)>,
    /// what could not be read
    pub notes: Vec<String>,
    pub episodes: Episodes,
}

/// A step, and the numbers measured then by their names.
type Point = (usize, Vec<(String, f64)>);

/// Keys of a config with their values.
type Keys = Vec<(String, String)>;

/// What was measured in one run.
struct Measured {
    run: Run,
    /// steps with their metrics
    train: Vec<Point>,
    eval: Vec<Point>,
}

impl Page {
    /// Reads the runs.
    ///
    /// # Errors
    /// If one of them is no run, or its config cannot be read.
    pub fn read(runs: &[PathBuf]) -> Result<Page, Error> {
        let measured: Vec<Measured> = runs
            .iter()
            .map(|run| measured(run, Limits::of(runs.len())))
            .collect::<Result<_, Error>>()?;
        let last = |m: &Measured| m.train.last().map_or(0, |(step, _)| *step);
        let longest = measured.iter().map(last).max().unwrap_or(0);
        let bucket = longest.div_ceil(MOST_POINTS).max(1);
        let groups = grouped(&measured)
            .into_iter()
            .map(|(label, runs)| {
                let of = |curve: fn(&Measured) -> &[Point], bucket| {
                    let all: Vec<_> = runs.iter().map(|run| curve(&measured[*run])).collect();
                    curves(&all, bucket)
                };
                Group {
                    label,
                    train: of(|m| &m.train, bucket),
                    eval: of(|m| &m.eval, 1),
                    runs,
                }
            })
            .collect::<Vec<Group>>();
        let labels: Vec<&str> = groups.iter().map(|group| &*group.label).collect();
        Ok(Page {
            title: format!("{} - lapwing", labels.join(" / ")),
            groups,
            runs: measured.into_iter().map(|m| m.run).collect(),
            bucket,
        })
    }
}

fn measured(path: &Path, limits: Limits) -> Result<Measured, Error> {
    directory::is_run(path)?;
    let config = Config::load(&directory::config(path).to_string_lossy(), &[])?;
    let mut notes = Vec::new();
    let records: Vec<Record> = read(&directory::metrics(path), &mut notes)?;
    let sessions: Vec<directory::Session> = read(&directory::sessions(path), &mut notes)?;
    let episodes = match directory::episodes(path) {
        file if file.exists() => Episodes::read(&file, limits).map_err(|e| unreadable(&file, e))?,
        _ => Episodes::default(),
    };
    if episodes.damaged > 0 {
        notes.push(left_out("episodes.jsonl", episodes.damaged));
    }
    let (base, config_lines) = differences(&config, sessions.first());
    let mut measured = Measured {
        run: Run {
            name: name(path),
            config_name: config.name.clone(),
            seed: config.train.seed.to_string(),
            game: config.game.name.to_string(),
            steps_done: 0,
            steps_total: config.train.steps,
            running: directory::is_in_use(path),
            yardsticks: None,
            evaluations: Vec::new(),
            warnings: Vec::new(),
            sessions,
            seconds: Vec::new(),
            tokens_played: 0,
            tokens_computed: 0,
            base,
            config: config_lines,
            notes,
            episodes,
        },
        train: Vec::new(),
        eval: Vec::new(),
    };
    let mut seconds = [("rollout", 0.0), ("update", 0.0), ("evaluation", 0.0)];
    for record in records {
        let run = &mut measured.run;
        match record {
            Record::Step(step) => {
                seconds[0].1 += step.seconds_rollout;
                seconds[1].1 += step.seconds_update;
                run.tokens_played += step.tokens_played;
                run.tokens_computed += step.tokens_computed;
                run.steps_done = step.step;
                measured.train.push((step.step, numbers(&step)));
            }
            Record::Evaluation(evaluation) => {
                seconds[2].1 += evaluation.seconds_evaluation;
                let numbers = numbers(&evaluation);
                measured.eval.push((evaluation.step, numbers));
                run.evaluations.push(evaluation);
            }
            Record::Baselines(yardsticks) => run.yardsticks = Some(yardsticks),
            Record::Warning(warning) => run.warnings.push(warning),
            Record::Episode(_) => (),
        }
    }
    measured.run.seconds = seconds.to_vec();
    Ok(measured)
}

/// The lines of a file; those that cannot be read are noted, and so is a file that is not there.
fn read<T: DeserializeOwned>(path: &Path, notes: &mut Vec<String>) -> Result<Vec<T>, Error> {
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let Ok(file) = File::open(path) else {
        notes.push(format!("{file_name} is not there, or cannot be opened."));
        return Ok(Vec::new());
    };
    let (mut file, mut line) = (BufReader::new(file), Vec::new());
    let (mut found, mut damaged) = (Vec::new(), 0);
    while file
        .read_until(b'\n', &mut line)
        .map_err(|e| unreadable(path, e))?
        > 0
    {
        // A last line that is not finished is being written.
        if line.ends_with(b"\n") {
            match serde_json::from_slice(&line) {
                Ok(record) => found.push(record),
                Err(_) => damaged += 1,
            }
        }
        line.clear();
    }
    if damaged > 0 {
        notes.push(left_out(&file_name, damaged));
    }
    Ok(found)
}

fn left_out(file: &str, lines: usize) -> String {
    match lines {
        1 => format!("A line of {file} could not be read and is left out."),
        lines => format!("{lines} lines of {file} could not be read and are left out."),
    }
}

fn unreadable(path: &Path, error: std::io::Error) -> RecordError {
    RecordError::Read {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

/// What a directory is called, `.` too.
fn name(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = whole.file_name().unwrap_or(whole.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The preset that a run was made from, or else the defaults, by name; and each key with its value here and there.
fn differences(
    config: &Config,
    session: Option<&directory::Session>,
) -> (String, Vec<(String, String, String)>) {
    let asked = session.map_or(&config.name, |session| &session.config);
    let (name, base) = match PRESETS.iter().find(|preset| preset.name == asked) {
        Some(preset) => (
            format!("the preset {}", preset.name),
            Config::load(preset.name, &[]),
        ),
        None => ("the defaults".to_owned(), Ok(Config::resolved_default())),
    };
    let base = keys(&base.expect("presets and defaults are sound"));
    let lines = keys(config).into_iter().map(|(key, value)| {
        let other = base.get(&key).cloned().unwrap_or_default();
        (key, value, other)
    });
    (name, lines.collect())
}

/// Every key of a config with its value as TOML.
fn keys(config: &Config) -> BTreeMap<String, String> {
    let table: toml::Table = config.to_toml().parse().expect("just written");
    let mut found = BTreeMap::new();
    flatten("", &toml::Value::Table(table), &mut found);
    found
}

fn flatten(key: &str, value: &toml::Value, found: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => table.iter().for_each(|(name, value)| {
            let key = match key {
                "" => name.clone(),
                key => format!("{key}.{name}"),
            };
            flatten(&key, value, found);
        }),
        value => {
            found.insert(key.to_owned(), value.to_string());
        }
    }
}

/// The runs by config, with a name for each that tells it from the others.
fn grouped(measured: &[Measured]) -> Vec<(String, Vec<usize>)> {
    let experiment = |m: &Measured| -> Keys {
        let keys = m.run.config.iter();
        let keys = keys.filter(|(key, ..)| !is_repetition(key));
        keys.map(|(key, value, _)| (key.clone(), value.clone()))
            .collect()
    };
    let mut groups: Vec<(Keys, Vec<usize>)> = Vec::new();
    for (number, run) in measured.iter().enumerate() {
        let config = experiment(run);
        match groups.iter_mut().find(|(known, _)| *known == config) {
            Some((_, runs)) => runs.push(number),
            None => groups.push((config, vec![number])),
        }
    }
    let all: Vec<Keys> = groups.iter().map(|(config, _)| config.clone()).collect();
    let differs = |pair: &&(String, String)| all.iter().any(|other| !other.contains(pair));
    let mut names: Vec<String> = groups
        .iter()
        .map(|(config, runs)| (&measured[runs[0]].run.config_name, config))
        .map(|(name, config)| {
            let own: Vec<String> = config
                .iter()
                .filter(differs)
                .map(|(key, value)| format!("{key}={value}"))
                .take(3)
                .collect();
            let all_alike = measured.iter().all(|m| m.run.config_name == *name);
            let name = (!all_alike || own.is_empty()).then(|| name.clone());
            name.into_iter().chain(own).collect::<Vec<_>>().join(" ")
        })
        .collect();
    // Names that say it all need no more.
    let plain: Vec<&String> = groups
        .iter()
        .map(|(_, runs)| &measured[runs[0]].run.config_name)
        .collect();
    if (1..plain.len()).all(|i| !plain[..i].contains(&plain[i])) {
        names = plain.into_iter().cloned().collect();
    }
    names
        .into_iter()
        .zip(groups)
        .map(|(name, (_, runs))| (name, runs))
        .collect()
}

/// Some seeds as one: at each step (of so many steps, their middle) the mean of those that have the metric, with the lowest
/// and the highest.
fn curves(seeds: &[&[Point]], bucket: usize) -> Curves {
    // By name, then by place; each with its seed.
    type Values = BTreeMap<usize, Vec<(usize, f64)>>;
    let mut values: BTreeMap<&str, Values> = BTreeMap::new();
    let mut places = std::collections::BTreeSet::new();
    for (seed, points) in seeds.iter().enumerate() {
        for (step, metrics) in *points {
            let place = step.saturating_sub(1) / bucket * bucket;
            let place = if bucket == 1 { *step } else { place };
            places.insert(place);
            for (name, value) in metrics {
                let of_name = values.entry(name).or_default();
                of_name.entry(place).or_default().push((seed, *value));
            }
        }
    }
    let middle = |place: &usize| match bucket {
        1 => *place as f64,
        bucket => *place as f64 + (bucket + 1) as f64 / 2.0,
    };
    let mut metrics = BTreeMap::new();
    for (name, by_place) in values {
        let mut curve = Curve::default();
        for place in &places {
            let means = by_place
                .get(place)
                .map_or(Vec::new(), |v| by_seed(v, seeds.len()));
            let count = means.len() as f64;
            let mean = (!means.is_empty()).then(|| short(means.iter().sum::<f64>() / count));
            curve.mean.push(mean);
            if seeds.len() > 1 {
                curve
                    .low
                    .push(means.iter().copied().reduce(f64::min).map(short));
                curve
                    .high
                    .push(means.iter().copied().reduce(f64::max).map(short));
            }
        }
        metrics.insert(name.to_owned(), curve);
    }
    Curves {
        x: places.iter().map(middle).collect(),
        metrics,
    }
}

/// The mean of each seed that has values.
fn by_seed(values: &[(usize, f64)], seeds: usize) -> Vec<f64> {
    (0..seeds)
        .filter_map(|seed| {
            let own: Vec<f64> = values
                .iter()
                .filter(|(of, _)| *of == seed)
                .map(|(_, value)| *value)
                .collect();
            (!own.is_empty()).then(|| own.iter().sum::<f64>() / own.len() as f64)
        })
        .collect()
}

/// Five figures: more than a chart can show.
fn short(value: f64) -> f64 {
    format!("{value:.4e}").parse().expect("just written")
}
