//! `lapwing runs`: a table of runs.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use lapwing_lab::text_table::TextTable;
use lapwing_train::record::directory::{self, Session};
use lapwing_train::record::jsonl;
use lapwing_train::runs::runs_in;
use lapwing_train::{Config, Error};
use serde_json::{Map, Value};

use super::loaded_model::InputError;
use crate::args::RunsArgs;
use crate::{out, records};

/// The names and values of a run's columns.
type Columns = [(&'static str, Value); 10];

/// Prints the runs below a directory in the order in which they were started.
pub fn list(arguments: &RunsArgs) -> Result<()> {
    let place = &arguments.place;
    let name = place.display();
    // Before the first run there is no default directory.
    if !place.is_dir() && place != Path::new("runs") {
        let problem = "not a directory; wanted one with runs, such as runs";
        return Err(InputError::new(name, problem).into());
    }
    let found = runs_in(place);
    if found.is_empty() {
        out::note(&format!(
            "there is no run in {name}; `lapwing train` makes runs/NAME-1"
        ));
    }
    let mut runs = Vec::new();
    for run in found {
        match columns(&run) {
            Ok(columns) => runs.push(columns),
            Err(error) => out::warning(&format!("{} is not listed: {error}", run.display())),
        }
    }
    runs.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let runs = runs.into_iter().map(|(_, columns)| columns);
    if arguments.json {
        let object = |run: Columns| run.map(|(name, value)| (name.to_owned(), value));
        let runs: Vec<Map<_, _>> = runs.map(|run| object(run).into_iter().collect()).collect();
        writeln!(out::raw(), "{}", serde_json::to_string_pretty(&runs)?)?;
        return Ok(());
    }
    let cell = |(name, value): (&str, Value)| (name.replace('_', " "), cell(&value));
    let cells = |run: Columns| run.map(cell).to_vec();
    write!(out::shown(), "{}", TextTable::of(runs.map(cells)).text())?;
    Ok(())
}

/// Returns the time of the first start of a run, and its columns.
fn columns(run: &Path) -> Result<(f64, Columns), Error> {
    let config = Config::of_run(run)?;
    let records = jsonl::read(&directory::metrics(run))?;
    // A run that has just begun has none.
    let sessions: Vec<Session> = jsonl::read(&directory::sessions(run)).unwrap_or_default();
    let (steps, best) = (config.train.steps, records::best(&records));
    let step = records::steps(&records).last().map_or(0, |step| step.step);
    let is_evaluated = records::evaluations(&records).any(|evaluation| evaluation.step >= steps);
    let state = match directory::is_in_use(run) {
        true => "running",
        false if is_evaluated => "done",
        false => "stopped",
    };
    let model = sessions.last().map(|session| session.model.clone());
    let columns = [
        ("run", run.to_string_lossy().into()),
        ("game", config.game.name.to_string().into()),
        ("model", model.into()),
        ("seed", config.train.seed.into()),
        ("step", step.into()),
        ("steps", steps.into()),
        ("state", state.into()),
        ("best_return", best.map(|best| best.play.return_mean).into()),
        (
            "best_success",
            best.map(|best| best.play.success_rate).into(),
        ),
        ("best_step", best.map(|best| best.step).into()),
    ];
    Ok((
        sessions.first().map_or(f64::MAX, |first| first.time),
        columns,
    ))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.3}", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}
