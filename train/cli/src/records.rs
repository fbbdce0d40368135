//! The records of a run, by kind.

use std::path::Path;

use lapwing_learn::metrics::StepMetrics;
use lapwing_play::metrics::Baselines;
use lapwing_train::record::directory::{self, Trained};
use lapwing_train::record::metrics::{Evaluation, Warning};
use lapwing_train::record::{Record, jsonl};

pub fn steps(records: &[Record]) -> impl Iterator<Item = &StepMetrics> {
    records.iter().filter_map(|record| match record {
        Record::Step(step) => Some(step),
        _ => None,
    })
}

pub fn evaluations(records: &[Record]) -> impl Iterator<Item = &Evaluation> {
    records.iter().filter_map(|record| match record {
        Record::Evaluation(evaluation) => Some(evaluation),
        _ => None,
    })
}

/// Returns the evaluation with the highest mean return, the earliest of equal ones.
pub fn best(records: &[Record]) -> Option<&Evaluation> {
    evaluations(records).reduce(|best, other| {
        match other.play.return_mean > best.play.return_mean {
            true => other,
            false => best,
        }
    })
}

/// Returns the directory of a run's trained weights, and the step of the best ones.
pub fn described(run: &Path, trained: &Trained) -> String {
    let dir = trained.dir();
    let records = jsonl::read(&directory::metrics(run)).unwrap_or_default();
    let shown = dir.display();
    match best(&records).filter(|_| dir == directory::best(run)) {
        Some(best) if best.step == 0 => format!("{shown} (step 0, before training)"),
        Some(best) => format!("{shown} (step {})", best.step),
        None => shown.to_string(),
    }
}

pub fn warnings(records: &[Record]) -> impl Iterator<Item = &Warning> {
    records.iter().filter_map(|record| match record {
        Record::Warning(warning) => Some(warning),
        _ => None,
    })
}

pub fn baselines(records: &[Record]) -> Option<&Baselines> {
    records.iter().rev().find_map(|record| match record {
        Record::Baselines(baselines) => Some(baselines),
        _ => None,
    })
}
