//! What is told of a run whoever learns in it: what was worked on, how it went on from where it was, and what came of it.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use lapwing_lab::report;
use lapwing_learn::metrics::StepMetrics;
use lapwing_play::Progress;
use lapwing_play::metrics::PlayMetrics;
use lapwing_tensor::Gpu;
use lapwing_train::Error;
use lapwing_train::checkpoint;
use lapwing_train::checkpoint::Saved;
use lapwing_train::record::Record;
use lapwing_train::record::directory::{RunDirectory, Session};
use lapwing_train::record::metrics::{Evaluation, now};

use crate::args;
use crate::out;
use crate::progress::Terminal;
use crate::table::comparison;

/// The table, what was not learned if it was nothing, where it is, and the report.
pub fn conclude(
    run: RunDirectory,
    learned: impl Fn(&StepMetrics) -> bool,
    why_not: &str,
    learned_is: &str,
) -> Result<()> {
    let place = run.path().to_owned();
    let records = run.records()?;
    let mut out = out::shown();
    write!(out, "{}", before_and_after(&records))?;
    let of_steps = || {
        records.iter().filter_map(|record| match record {
            Record::Step(metrics) => Some(metrics),
            _ => None,
        })
    };
    let nothing_learned = of_steps().next().is_some() && !of_steps().any(learned);
    // Nobody works on it any more, and its page should not say so.
    drop(run);
    if nothing_learned {
        writeln!(out, "\n{why_not}")?;
    }
    writeln!(out, "\n{learned_is}. Watch it play:")?;
    let shown = out::quoted(&place.to_string_lossy());
    writeln!(out, "  {} play {shown}", program())?;
    let page = report::default_path(std::slice::from_ref(&place));
    // All is saved by now: a page that cannot be written is no failure of the training.
    match report::write(std::slice::from_ref(&place), &page) {
        Ok(_) => writeln!(
            out,
            "Its report, a page for any browser, is in {}",
            page.display()
        )?,
        Err(error) => out::note(&format!("the report could not be written: {error}")),
    }
    Ok(())
}

/// The latest checkpoint of a run that is of use; later ones are told of. None where it was stopped before it was saved for
/// the first time: what it told until then is cut off.
pub fn latest(run: &mut RunDirectory, terminal: &Terminal) -> Result<Option<Saved>, Error> {
    let (saved, damaged) = checkpoint::latest(run.path());
    for error in &damaged {
        terminal.note(&format!("left out: {error}"));
    }
    match (&saved, damaged.into_iter().next()) {
        (None, Some(error)) => return Err(error.into()),
        (None, None) => run.cut([0, 0])?,
        (Some(_), _) => (),
    }
    Ok(saved)
}

/// What to type to go on with a run.
pub fn go_on_with(run: &Path) -> String {
    let run = out::quoted(&run.to_string_lossy());
    format!("go on with: {} train --resume {run}", program())
}

/// How the model did before and after, and at its best, between players that need none.
pub fn before_and_after(records: &[Record]) -> String {
    let evaluations = || {
        records.iter().filter_map(|record| match record {
            Record::Evaluation(evaluation) => Some(evaluation),
            _ => None,
        })
    };
    let mut rows: Vec<(String, &PlayMetrics)> = Vec::new();
    // A run of no steps is examined once.
    if let Some(before) = evaluations().next() {
        rows.push(("before training".to_owned(), &before.play));
    }
    if let Some(after) = evaluations().skip(1).last() {
        rows.push(("after training".to_owned(), &after.play));
        let score = |play: &PlayMetrics| play.return_mean;
        let best =
            evaluations().reduce(|best, other| match score(&other.play) > score(&best.play) {
                true => other,
                false => best,
            });
        let is_another = |best: &&Evaluation| best.step != after.step && best.step > 0;
        if let Some(best) = best.filter(is_another) {
            rows.push((format!("at its best (step {})", best.step), &best.play));
        }
    }
    let yardsticks = records.iter().find_map(|record| match record {
        Record::Baselines(yardsticks) => Some(yardsticks),
        _ => None,
    });
    yardsticks.map_or(String::new(), |yardsticks| comparison(yardsticks, &rows))
}

/// What is noted of this work on a run.
pub fn session(gpu: &Gpu, step: usize, model: &str, arguments: &args::Train) -> Session {
    let caps = gpu.caps();
    let config = match &arguments.resume {
        Some(run) => run.display().to_string(),
        None => arguments.request.config.clone(),
    };
    Session {
        time: now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        step,
        device: caps.name.clone(),
        driver: caps.driver.clone(),
        backend: caps.backend.clone(),
        software: gpu.is_software(),
        config,
        model: model.to_owned(),
    }
}

/// This program as it was called: from a build it is not on anybody's path.
fn program() -> String {
    let name = std::env::args_os().next();
    name.map_or("lapwing".to_owned(), |name| {
        out::quoted(&name.to_string_lossy())
    })
}
