//! What the ranks of a run check at its start and between its steps.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lapwing_learn::communicator::Communicator;
use lapwing_learn::ranks::RankState;
use lapwing_tensor::GpuError;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::learner::Learner;
use crate::state::State;

/// Steps between two comparisons of the trained weights.
const COMPARE_EVERY: usize = 10;

/// What is equal on all ranks of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankIdentity {
    /// The host.
    pub host: String,
    /// The number of the device on the host, if it was selected.
    pub number: Option<usize>,
    /// The name of the device.
    pub device: String,
    /// A checksum of the program.
    pub program: u32,
    /// The arguments of the command.
    pub arguments: String,
    /// The fingerprint of the model and of the starting adapter.
    pub model: String,
}

/// Compares the ranks before a run begins. Each brings itself, or the error that prevents it from taking part. Returns all
/// ranks on rank 0, and none elsewhere.
///
/// # Errors
/// If a rank has an error, or program, arguments or model differ.
pub fn compare(
    ranks: &dyn Communicator,
    own: Result<RankIdentity, String>,
) -> Result<Vec<RankIdentity>, Error> {
    let bytes = serde_json::to_vec(&own).expect("plain values");
    let mut all = vec![own];
    ranks.gather(&bytes, &mut |bytes| {
        all.push(serde_json::from_slice(bytes).expect("a message of this program"));
    });
    let all: Result<Vec<RankIdentity>, String> = all.into_iter().collect();
    let all = all.map_err(Error::Unusable)?;
    for (rank, other) in all.iter().enumerate() {
        let differs = match other {
            _ if other.program != all[0].program => "another build of lapwing",
            _ if other.arguments != all[0].arguments => "other arguments",
            _ if other.model != all[0].model => "other files of the model or the adapter",
            _ => continue,
        };
        let (host, first) = (&other.host, &all[0].host);
        return Err(Error::Unusable(format!(
            "rank {rank} on {host} has {differs} than rank 0 on {first}: all ranks need the same"
        )));
    }
    Ok(all)
}

/// Returns whether a signal asked any rank to stop. Now and then compares the trained weights of the ranks.
pub(crate) fn are_stopped<L: Learner>(
    state: &mut State<L>,
    stop: &AtomicBool,
) -> Result<bool, Error> {
    let step = state.step;
    let learner = state.learner.language();
    let Some(learner) = learner.filter(|learner| learner.ranks.size() > 1) else {
        return Ok(stop.load(Relaxed));
    };
    let states = learner.rank_states(stop, step.is_multiple_of(COMPARE_EVERY))?;
    let other = states.iter().position(|s| s.checksum != states[0].checksum);
    if let Some(rank) = other {
        return Err(Error::WrongNumbers(format!(
            "rank {rank} has other trained weights than rank 0 at step {step}: its device or its memory is faulty"
        )));
    }
    Ok(states.iter().any(|state| state.stop))
}

/// Ends the other ranks of a run. Returns the state of each rank; of a single process none.
///
/// # Errors
/// An error of the device.
pub fn dismiss<L: Learner>(state: &mut State<L>) -> Result<Vec<RankState>, GpuError> {
    let learner = state.learner.language();
    let Some(learner) = learner.filter(|learner| learner.ranks.size() > 1) else {
        return Ok(Vec::new());
    };
    let states = learner.rank_states(&AtomicBool::new(false), false)?;
    learner.dismiss_ranks();
    Ok(states)
}

#[cfg(test)]
mod tests;
