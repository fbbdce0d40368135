//! `lapwing runs`: a table of runs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use lapwing_lab::text_table::TextTable;
use lapwing_train::record::directory::{self, Session};
use lapwing_train::record::jsonl;
use lapwing_train::{Config, Error};
use serde::Serialize;

use super::loaded_model::InputError;
use crate::args::RunsArgs;
use crate::{out, records};

/// Levels of directories below that of a sweep: settings, and the runs of their seeds.
const LEVELS: usize = 3;

#[derive(Debug, Serialize)]
struct ListedRun {
    run: PathBuf,
    game: String,
    model: String,
    seed: u64,
    /// Training steps completed.
    step: usize,
    /// Training steps of the config.
    steps: usize,
    is_running: bool,
    /// The step of the best evaluation.
    best_step: Option<usize>,
    /// Its mean return.
    best_return: Option<f64>,
    /// Its success rate.
    best_success_rate: Option<f64>,
    #[serde(skip)]
    begun: f64,
}

/// Prints the runs below a directory in the order in which they were started.
pub fn list(arguments: &RunsArgs) -> Result<()> {
    let place = &arguments.place;
    let mut paths = Vec::new();
    if let Err(error) = find(place, LEVELS, &mut paths) {
        let problem = format!("cannot be read: {error}; `lapwing train` makes runs/NAME-1");
        return Err(InputError::new(place.display().to_string(), problem).into());
    }
    let mut runs = Vec::new();
    for path in paths {
        match ListedRun::read(&path) {
            Ok(run) => runs.push(run),
            Err(error) => out::warning(&format!("{} is not listed: {error}", path.display())),
        }
    }
    runs.sort_by(|a, b| a.begun.total_cmp(&b.begun).then_with(|| a.run.cmp(&b.run)));
    if arguments.json {
        writeln!(out::raw(), "{}", serde_json::to_string_pretty(&runs)?)?;
        return Ok(());
    }
    match runs.is_empty() {
        true => out::status(&format!("there are no runs in {}", place.display())),
        false => write!(out::shown(), "{}", table(&runs))?,
    }
    Ok(())
}

/// Adds this run, or the runs below this directory.
fn find(path: &Path, levels: usize, runs: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if directory::is_run(path).is_ok() {
        runs.push(path.to_owned());
    } else if levels > 0 {
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            if path.is_dir() {
                find(&path, levels - 1, runs)?;
            }
        }
    }
    Ok(())
}

impl ListedRun {
    fn read(run: &Path) -> Result<ListedRun, Error> {
        let config = Config::load(&directory::config(run).to_string_lossy(), &[])?;
        let (metrics, sessions) = (directory::metrics(run), directory::sessions(run));
        let records = jsonl::read(&metrics)?;
        // A run that has just been created has none.
        let sessions: Vec<Session> = match sessions.exists() {
            true => jsonl::read(&sessions)?,
            false => Vec::new(),
        };
        let best = records::best(&records);
        Ok(ListedRun {
            run: run.to_owned(),
            game: config.game.name.to_string(),
            model: match sessions.last() {
                Some(session) => session.model.clone(),
                None => config.model.source()?.name(),
            },
            seed: config.train.seed,
            step: records::steps(&records).last().map_or(0, |step| step.step),
            steps: config.train.steps,
            is_running: directory::is_in_use(run),
            best_step: best.map(|best| best.step),
            best_return: best.map(|best| best.play.return_mean),
            best_success_rate: best.map(|best| best.play.success_rate),
            begun: sessions.first().map_or(f64::MAX, |session| session.time),
        })
    }
}

fn table(runs: &[ListedRun]) -> String {
    let mut table = TextTable::new(&[
        "run",
        "game",
        "model",
        "seed",
        "steps",
        "state",
        "best return",
        "success",
        "at step",
    ]);
    for run in runs {
        let state = match (run.is_running, run.step < run.steps) {
            (true, _) => "running",
            (false, true) => "stopped",
            (false, false) => "done",
        };
        let number = |number: Option<f64>| number.map_or(String::new(), |x| format!("{x:.3}"));
        table.row([
            run.run.display().to_string(),
            run.game.clone(),
            run.model.clone(),
            run.seed.to_string(),
            format!("{}/{}", run.step, run.steps),
            state.to_owned(),
            number(run.best_return),
            number(run.best_success_rate),
            run.best_step.map_or(String::new(), |step| step.to_string()),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn runs_are_listed() {
        let run = |run: &str, step, best_step| ListedRun {
            run: run.into(),
            game: "frozen-lake".to_owned(),
            model: "lapwing-base".to_owned(),
            seed: 1,
            step,
            steps: 100,
            is_running: false,
            best_step,
            best_return: best_step.map(|_| 0.96),
            best_success_rate: best_step.map(|_| 0.96),
            begun: 0.0,
        };
        let runs = [
            run("runs/frozen-lake-1", 100, Some(75)),
            run("runs/frozen-lake-2", 0, None),
        ];
        assert_snapshot!(table(&runs));
    }
}
