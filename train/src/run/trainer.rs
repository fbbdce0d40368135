//! The loop around the algorithm: evaluates, records, saves, and stops.

use std::path::Path;

use crate::learn::ms_grpo;
use crate::play::evaluate::evaluate;
use crate::record::{Evaluation, Record, Sink};
use crate::run::state::State;
use crate::{Error, Progress};

/// Trains from where the state is to the last step, with evaluations before, between and after, and returns these. Each
/// evaluation is followed by a save of the adapter to `dir`, and so is an error, before it is returned, unless training has
/// diverged.
///
/// # Errors
/// If the game, the model, the device, a sink or the disk fails, or a metric is not a finite number. What was recorded
/// before stays.
pub fn train(
    state: &mut State,
    dir: &Path,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
) -> Result<Vec<Evaluation>, Error> {
    let mut evaluations = Vec::new();
    match steps(state, dir, sinks, progress, &mut evaluations) {
        Ok(()) => Ok(evaluations),
        Err(error) => {
            // The error is what matters. Where training has diverged, or the disk is full, what the last evaluation
            // saved stays.
            let saved = !error.is_divergence() && state.save_adapter(dir).is_ok();
            let dir = dir.display();
            match (saved, evaluations.last()) {
                (true, _) => progress.note(&format!("the adapter as it is now is kept in {dir}")),
                (false, Some(Evaluation { step, .. })) => {
                    progress.note(&format!(
                        "the adapter as it was at step {step} is kept in {dir}"
                    ));
                }
                (false, None) => (),
            }
            Err(error)
        }
    }
}

fn steps(
    state: &mut State,
    dir: &Path,
    sinks: &mut [&mut dyn Sink],
    progress: &dyn Progress,
    evaluations: &mut Vec<Evaluation>,
) -> Result<(), Error> {
    loop {
        let last = state.step >= state.config.train.steps;
        if last || state.config.eval.is_due(state.step) {
            let evaluation = examine(state, progress)?;
            tell(sinks, Record::Evaluation(evaluation.clone()))?;
            state.save_adapter(dir)?;
            evaluations.push(evaluation);
        }
        if last {
            return Ok(());
        }
        let metrics = ms_grpo::step(state, progress)?;
        state.step += 1;
        tell(sinks, Record::Step(metrics))?;
    }
}

fn tell(sinks: &mut [&mut dyn Sink], record: Record) -> Result<(), Error> {
    record.check()?;
    Ok(sinks.iter_mut().try_for_each(|sink| sink.record(&record))?)
}

/// How the policy does as it stands.
fn examine(state: &mut State, progress: &dyn Progress) -> Result<Evaluation, Error> {
    let (step, seats) = (state.step, state.evaluation_seats()?);
    let (scenario, referee, mut player) = state.seated(state.config.eval.temperature);
    let metrics = evaluate(scenario, &referee, &seats, &mut player, progress)?;
    Ok(Evaluation {
        step,
        eval: metrics,
    })
}
