//! One run on several processes, which MPI calls ranks.
//!
//! Rank 0 runs the algorithm. The other ranks hold the same model and do their share when rank 0 requests it: they play
//! episodes and compute gradients of batches. Rank 0 joins the results in the order of episodes and batches, so the number
//! of ranks does not change a bit of a run.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lapwing_model::{Adapter, MEMORY, ModelError, StoredAdapter, clear_memory, write_file};
use lapwing_play::Episode;
use lapwing_tensor::GpuError;
use serde::{Deserialize, Serialize};

use crate::LearnError;
use crate::batch::Batch;
use crate::communicator::{Request, read};
use crate::config::StepOptions;
use crate::language::LanguageLearner;
use crate::metrics::BatchMetrics;
use crate::ms_grpo::accumulate;
use crate::ratio::Ratios;

/// The files of an adapter.
const PEFT_FILES: [&str; 2] = ["adapter_config.json", "adapter_model.safetensors"];

/// The state of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankState {
    /// Whether a signal asked it to stop.
    pub stop: bool,
    /// Tokens that its model has computed, in play and in updates.
    pub tokens_computed: u64,
    /// Checksum of its trained weights, if that was requested.
    pub checksum: Option<u32>,
}

/// On rank 0.
impl LanguageLearner {
    /// Requests the gradients of batches from the other ranks, one from each.
    pub(crate) fn request_gradients(&self, batches: &[Batch], ratios: &Ratios) {
        let request = Request::Gradient {
            batches: batches.into(),
            ratios: Cow::Borrowed(ratios),
        };
        self.ranks.request(&request, &[]);
    }

    /// Adds the requested gradients, in the order of the batches, to those accumulated. Returns the metrics of the batches.
    pub(crate) fn add_gradients(&mut self) -> Vec<BatchMetrics> {
        let parameters = self.parameters.as_mut().expect("a learner that trains");
        let mut all = Vec::new();
        let add = |metrics: Option<BatchMetrics>, gradient: Vec<f32>| {
            if let Some(metrics) = metrics {
                parameters.add(&gradient);
                all.push(metrics);
            }
        };
        self.ranks.answers(add);
        all
    }

    /// Sends the trained weights to the other ranks. Needed after each change.
    ///
    /// # Errors
    /// An error of the device.
    pub fn share_weights(&self) -> Result<(), GpuError> {
        if self.ranks.size() > 1 {
            let parameters = self.parameters.as_ref().expect("a learner that trains");
            self.ranks
                .request(&Request::Weights, &parameters.flat_values()?);
        }
        Ok(())
    }

    /// Sends the adapter in a PEFT directory to the other ranks, as their KL reference.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn share_reference(&self, dir: &Path) -> Result<(), ModelError> {
        if self.ranks.size() == 1 {
            return Ok(());
        }
        let read = |name: &&str| {
            let path = dir.join(name);
            let contents = fs::read(&path);
            let contents = contents.map_err(|error| ModelError::unreadable(&path, error))?;
            Ok(((*name).to_owned(), contents))
        };
        let files: Result<_, ModelError> = PEFT_FILES.iter().map(read).collect();
        self.ranks.request(&Request::Reference(files?), &[]);
        Ok(())
    }

    /// Returns the state of each rank, from rank 0 on.
    ///
    /// # Errors
    /// An error of the device.
    pub fn rank_states(
        &self,
        stop: &AtomicBool,
        checksum: bool,
    ) -> Result<Vec<RankState>, GpuError> {
        self.ranks.request(&Request::State { checksum }, &[]);
        let mut states = vec![self.rank_state(stop, checksum)?];
        self.ranks.answers(|state, _| states.push(state));
        Ok(states)
    }

    /// Ends the loops of the other ranks.
    pub fn dismiss_ranks(&self) {
        self.ranks.request(&Request::End, &[]);
    }

    fn rank_state(&self, stop: &AtomicBool, checksum: bool) -> Result<RankState, GpuError> {
        let parameters = self.parameters.as_ref().expect("a learner that trains");
        let sum = |values: Vec<f32>| crc32c::crc32c(bytemuck::cast_slice(&values));
        Ok(RankState {
            stop: stop.load(Relaxed),
            tokens_computed: self.tokens_computed + self.policy.arena.computed(),
            checksum: match checksum {
                true => Some(sum(parameters.flat_values()?)),
                false => None,
            },
        })
    }
}

/// The loop of the ranks other than 0: answers requests until the run is over.
///
/// # Errors
/// If the game, the model or the device fails. The run cannot go on then.
///
/// # Panics
/// If the learner only plays.
pub fn assist(
    learner: &mut LanguageLearner,
    options: &StepOptions<'_>,
    stop: &AtomicBool,
) -> Result<(), LearnError> {
    loop {
        let mut bytes = Vec::new();
        learner.ranks.broadcast(&mut bytes);
        let (request, numbers) = read(&bytes);
        match request {
            Request::Play {
                world,
                seats,
                temperature,
            } => {
                let share = &seats[learner.ranks.share(seats.len())];
                let (policy, watch) = (options.policy, &mut |_: &[Episode]| ());
                let episodes = learner.play_here(policy, world, share, temperature, watch)?;
                learner.ranks.answer(&episodes, &[]);
            }
            Request::Gradient { batches, ratios } => {
                let mut own = batches.get(learner.ranks.rank() - 1).cloned();
                let own = own.as_mut();
                let metrics = own.map(|batch| accumulate(learner, options.train, &ratios, batch));
                let metrics: Option<BatchMetrics> = metrics.transpose()?;
                let parameters = learner.parameters.as_mut().expect("a learner that trains");
                let gradient = match metrics {
                    Some(_) => parameters.gathered()?,
                    None => Vec::new(),
                };
                parameters.discard();
                learner.ranks.answer(&metrics, &gradient);
            }
            Request::Weights => {
                let parameters = learner.parameters.as_mut().expect("a learner that trains");
                parameters.write_flat_values(&numbers);
            }
            Request::Reference(files) => {
                // Ranks may be threads of one process.
                let folder = format!("reference of {:?}", std::thread::current().id());
                let folder = Path::new(MEMORY).join(folder);
                for (name, contents) in files {
                    write_file(&folder.join(name), &contents)?;
                }
                let policy = &mut learner.policy;
                let stored = StoredAdapter::read(policy.model.config(), &folder);
                clear_memory(&folder);
                let stored = stored?;
                if let Some(reference) = &mut policy.reference {
                    reference.adapter = Some(Adapter::frozen(&policy.model, &stored));
                }
            }
            Request::State { checksum } => {
                let state = learner.rank_state(stop, checksum)?;
                learner.ranks.answer(&state, &[]);
            }
            Request::End => return Ok(()),
        }
    }
}
