//! The records of a run, by kind.

use lapwing_learn::metrics::StepMetrics;
use lapwing_play::metrics::Baselines;
use lapwing_train::record::Record;
use lapwing_train::record::metrics::{Evaluation, Warning};

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
