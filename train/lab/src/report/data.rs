//! The data of a report page, read from the directories of its runs. `page.js` reads these fields.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use lapwing_model::is_file;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::episodes::{EpisodeLimits, ShownEpisodes};
use super::lines::read_lines;
use crate::stats::{mean, range};
use crate::sweep::{self, dotted_keys};
use lapwing_learn::metrics::{StepMetrics, numbers};
use lapwing_play::metrics::Baselines;
use lapwing_train::config::PRESETS;
use lapwing_train::record::metrics::{Evaluation, TestResults, Warning};
use lapwing_train::record::{Record, directory, read_error};
use lapwing_train::{Config, Error};

/// Longer curves are averaged over neighbouring steps.
const MAX_CURVE_POINTS: usize = 400;

#[derive(Debug, Serialize)]
pub(crate) struct ReportData {
    pub(crate) title: String,
    pub(crate) groups: Vec<RunGroup>,
    /// In the order of the command line.
    pub(crate) runs: Vec<ReportRun>,
    /// Training steps per point of a curve.
    pub(crate) bucket: usize,
}

/// Runs whose configs differ only in the seed.
#[derive(Debug, Serialize)]
pub(crate) struct RunGroup {
    /// The name of the config, and its differences from the other groups.
    pub(crate) label: String,
    /// Indices of `ReportData::runs`.
    pub(crate) runs: Vec<usize>,
    pub(crate) train: GroupCurves,
    pub(crate) eval: GroupCurves,
}

/// Metrics by name, at the same steps.
#[derive(Debug, Serialize)]
pub(crate) struct GroupCurves {
    pub(crate) x: Vec<f64>,
    pub(crate) metrics: BTreeMap<String, SeedCurve>,
}

/// Mean and range of a metric over the seeds; `None` where it was not measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct SeedCurve {
    pub(crate) mean: Vec<Option<f64>>,
    /// Left out for a single seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) low: Vec<Option<f64>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) high: Vec<Option<f64>>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct ReportRun {
    /// The name of its directory; in a sweep, its setting and seed.
    pub(crate) name: String,
    pub(crate) config_name: String,
    /// As text, since JavaScript would round it.
    pub(crate) seed: String,
    pub(crate) game: String,
    /// Whether a language model was trained.
    pub(crate) language: bool,
    pub(crate) steps_done: usize,
    pub(crate) steps_total: usize,
    pub(crate) running: bool,
    pub(crate) baselines: Option<Baselines>,
    pub(crate) evaluations: Vec<Evaluation>,
    pub(crate) test: TestResults,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) sessions: Vec<directory::Session>,
    /// Seconds by phase.
    pub(crate) seconds: [(&'static str, f64); 3],
    pub(crate) tokens_played: u64,
    pub(crate) tokens_computed: u64,
    /// The name of the config that `config` is compared with.
    pub(crate) base: String,
    /// Each key, its value, and its value in the base.
    pub(crate) config: Vec<(String, String, String)>,
    /// Problems of the files.
    pub(crate) notes: Vec<String>,
    pub(crate) episodes: ShownEpisodes,
    #[serde(skip)]
    train: Vec<MetricPoint>,
    #[serde(skip)]
    eval: Vec<MetricPoint>,
}

type MetricPoint = (usize, Vec<(String, f64)>);

impl ReportData {
    /// Reads these runs, and the runs below these directories.
    ///
    /// # Errors
    /// If a directory contains no run, or its config cannot be read.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<ReportData, Error> {
        let runs_at = |path: &PathBuf| match lapwing_train::runs::runs_in(path) {
            none if none.is_empty() => vec![path.clone()],
            runs => runs,
        };
        let paths: Vec<PathBuf> = paths.iter().flat_map(runs_at).collect();
        let limits = EpisodeLimits::of(paths.len());
        let runs = paths.iter().map(|path| ReportRun::read(path, limits));
        let runs: Vec<ReportRun> = runs.collect::<Result<_, Error>>()?;
        let longest = runs.iter().map(|run| run.steps_done).max().unwrap_or(0);
        let bucket = longest.div_ceil(MAX_CURVE_POINTS).max(1);
        let group = |(label, members): (String, Vec<usize>)| {
            let seeds = || members.iter().map(|run| &runs[*run]);
            RunGroup {
                label,
                train: curves(seeds().map(|run| &run.train), bucket),
                eval: curves(seeds().map(|run| &run.eval), 1),
                runs: members,
            }
        };
        let groups: Vec<RunGroup> = grouped(&runs).into_iter().map(group).collect();
        let labels: Vec<&str> = groups.iter().map(|group| &*group.label).collect();
        Ok(ReportData {
            title: format!("{} - lapwing", labels.join(" / ")),
            groups,
            runs,
            bucket,
        })
    }
}

impl ReportRun {
    fn read(path: &Path, limits: EpisodeLimits) -> Result<ReportRun, Error> {
        let config = Config::of_run(path)?;
        let mut notes = Vec::new();
        let records: Vec<Record> = read(&directory::metrics(path), &mut notes)?;
        let sessions: Vec<directory::Session> = read(&directory::sessions(path), &mut notes)?;
        let file = directory::episodes(path);
        let episodes = match is_file(&file) {
            true => ShownEpisodes::read(&file, limits).map_err(|e| read_error(&file, e))?,
            false => ShownEpisodes::default(),
        };
        notes.extend(left_out("episodes.jsonl", episodes.damaged));
        let (base, config_lines) = differences(&config, sessions.first());
        let full_path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let name = full_path.file_name().unwrap_or(full_path.as_os_str());
        let name = name.to_string_lossy();
        let setting = sweep::setting_of(&full_path);
        let mixed = config.mix.iter().map(|mix| mix.title(&config.game));
        let mixed: Vec<String> = mixed.collect();
        let mut run = ReportRun {
            name: match &setting {
                Some(setting) => format!("{setting} {name}"),
                None => name.into_owned(),
            },
            config_name: setting.unwrap_or(config.name),
            seed: config.train.seed.to_string(),
            game: config.game.name.to_string(),
            language: config.learner.has_language(),
            steps_total: config.train.steps,
            running: directory::is_in_use(path),
            test: TestResults::read(path),
            sessions,
            seconds: [("rollout", 0.0), ("update", 0.0), ("evaluation", 0.0)],
            base,
            config: config_lines,
            notes,
            episodes,
            ..ReportRun::default()
        };
        for record in records {
            match record {
                Record::Step(step) => {
                    run.seconds[0].1 += step.seconds_rollout;
                    run.seconds[1].1 += step.seconds_update;
                    run.tokens_played += step.tokens_played.unwrap_or_default();
                    run.tokens_computed += step.tokens_computed.unwrap_or_default();
                    run.steps_done = step.step;
                    run.train.push((step.step, own_numbers(&step, &mixed)));
                }
                Record::Evaluation(evaluation) => {
                    run.seconds[2].1 += evaluation.seconds_evaluation;
                    run.eval.push((evaluation.step, numbers(&evaluation)));
                    run.evaluations.push(evaluation);
                }
                Record::Baselines(baselines) => run.baselines = Some(baselines),
                Record::Warning(warning) => run.warnings.push(warning),
                Record::Episode(_) => (),
            }
        }
        Ok(run)
    }
}

/// Returns the numbers of a step. What is drawn beside evaluations, which play the run's own game, is of this game alone: games
/// mixed into training have other returns.
fn own_numbers(step: &StepMetrics, mixed: &[String]) -> Vec<(String, f64)> {
    let mut all = numbers(step);
    if mixed.is_empty() || step.games.is_empty() {
        return all;
    }
    let own = step
        .games
        .iter()
        .find(|game| !mixed.contains(&game.game))
        .map(numbers)
        .unwrap_or_default();
    let drawn = ["return_mean", "success_rate", "valid_action_rate"];
    all.retain(|(name, _)| !drawn.contains(&&**name));
    all.extend(own.into_iter().filter(|(name, _)| drawn.contains(&&**name)));
    all
}

/// Returns the records of a file. Damaged lines and a missing file are noted.
fn read<T: DeserializeOwned>(path: &Path, notes: &mut Vec<String>) -> Result<Vec<T>, Error> {
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut found = Vec::new();
    if lapwing_model::reader(path).is_err() {
        notes.push(format!("{file_name} is missing or cannot be opened."));
        return Ok(found);
    }
    let damaged = read_lines(path, |line, _| {
        found.push(serde_json::from_slice(line).ok()?);
        Some(())
    });
    let damaged = damaged.map_err(|error| read_error(path, error))?;
    notes.extend(left_out(&file_name, damaged));
    Ok(found)
}

fn left_out(file: &str, lines: usize) -> Option<String> {
    let (lines, are) = match lines {
        0 => return None,
        1 => ("A line".to_owned(), "is"),
        lines => (format!("{lines} lines"), "are"),
    };
    Some(format!(
        "{lines} of {file} could not be read and {are} left out."
    ))
}

/// Returns the name of the run's preset (or of the defaults), and each key with its value here and there.
fn differences(
    config: &Config,
    session: Option<&directory::Session>,
) -> (String, Vec<(String, String, String)>) {
    let name = session.map_or(&config.name, |session| &session.config);
    let (name, base) = match PRESETS.iter().find(|preset| preset.name == name) {
        Some(preset) => {
            let base = Config::load(preset.name, &[]).expect("a preset is valid");
            (format!("the preset {}", preset.name), base)
        }
        None => ("the defaults".to_owned(), Config::resolved_default()),
    };
    let base = keys(&base);
    let lines = keys(config).into_iter().map(|(key, value)| {
        let other = base.get(&key).cloned().unwrap_or_default();
        (key, value, other)
    });
    (name, lines.collect())
}

/// Returns every key of a config with its value as TOML.
fn keys(config: &Config) -> BTreeMap<String, String> {
    let table: toml::Table = config.to_toml().parse().expect("a config is valid TOML");
    let keys = dotted_keys(&table).into_iter();
    keys.map(|(key, value)| (key, value.to_string())).collect()
}

fn grouped(runs: &[ReportRun]) -> Vec<(String, Vec<usize>)> {
    // These keys do not affect the results, or only distinguish repetitions.
    let is_ignored = |key: &str| {
        ["name", "train.seed"].contains(&key)
            || key.starts_with("record.")
            || key.starts_with("checkpoint.")
    };
    let mut groups: Vec<(Vec<String>, Vec<usize>)> = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let keys = run.config.iter().filter(|(key, ..)| !is_ignored(key));
        let config = keys.map(|(key, value, _)| format!("{key}={value}"));
        let config = config.collect();
        match groups.iter_mut().find(|(known, _)| *known == config) {
            Some((_, members)) => members.push(number),
            None => groups.push((config, vec![number])),
        }
    }
    let configs: Vec<Vec<String>> = groups.iter().map(|(config, _)| config.clone()).collect();
    let name = |members: &[usize]| &runs[members[0]].config_name;
    let names: BTreeSet<&String> = groups.iter().map(|(_, members)| name(members)).collect();
    let label = |(config, members): (Vec<String>, Vec<usize>)| {
        let name = name(&members).clone();
        if names.len() == configs.len() {
            return (name, members);
        }
        let differs = |key: &String| configs.iter().any(|other| !other.contains(key));
        let own: Vec<String> = config.into_iter().filter(differs).take(3).collect();
        let has_name = names.len() > 1 || own.is_empty();
        let words = has_name.then_some(name).into_iter().chain(own);
        (words.collect::<Vec<_>>().join(" "), members)
    };
    groups.into_iter().map(label).collect()
}

/// Combines the points of some seeds. A bucket of several steps becomes a point in its middle: first the mean of each
/// seed that has the metric, then mean and range over these seeds.
fn curves<'a>(
    seeds: impl ExactSizeIterator<Item = &'a Vec<MetricPoint>>,
    bucket: usize,
) -> GroupCurves {
    let count = seeds.len();
    let bucket_of = |step: usize| match bucket {
        1 => step,
        _ => step.saturating_sub(1) / bucket * bucket,
    };
    let mut buckets = BTreeSet::new();
    // By metric name, by the first step of the bucket, and by seed.
    let mut values: BTreeMap<&str, BTreeMap<usize, BTreeMap<usize, Vec<f64>>>> = BTreeMap::new();
    for (seed, points) in seeds.enumerate() {
        for (step, metrics) in points {
            let first = bucket_of(*step);
            buckets.insert(first);
            for (name, value) in metrics {
                let of_bucket = values.entry(name).or_default().entry(first).or_default();
                of_bucket.entry(seed).or_default().push(*value);
            }
        }
    }
    let curve = |by_bucket: &BTreeMap<usize, BTreeMap<usize, Vec<f64>>>| {
        let mut curve = SeedCurve::default();
        for first in &buckets {
            let of_seeds = by_bucket.get(first).into_iter().flatten();
            let means: Vec<f64> = of_seeds.map(|(_, values)| mean(values)).collect();
            let ends = range(&means);
            curve.mean.push(ends.map(|_| rounded(mean(&means))));
            if count > 1 {
                curve.low.push(ends.map(|[low, _]| rounded(low)));
                curve.high.push(ends.map(|[_, high]| rounded(high)));
            }
        }
        curve
    };
    let middle = |first: &usize| match bucket {
        1 => *first as f64,
        bucket => *first as f64 + (bucket + 1) as f64 / 2.0,
    };
    let metrics = values.iter();
    let metrics = metrics.map(|(name, by_bucket)| ((*name).to_owned(), curve(by_bucket)));
    GroupCurves {
        x: buckets.iter().map(middle).collect(),
        metrics: metrics.collect(),
    }
}

/// Rounds to five digits, which is more than a chart can show.
fn rounded(value: f64) -> f64 {
    format!("{value:.4e}").parse().expect("a number")
}
