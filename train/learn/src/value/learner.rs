//! A value network with its game, its optimiser and, for DQN, its replay.

use std::path::Path;

use lapwing_env::Scenario;
use lapwing_play::scenes::Scenes;
use lapwing_play::seeds;
use lapwing_play::{Episode, Referee, Seat};
use lapwing_tensor::random::Random;
use lapwing_tensor::{AdamW, Gpu, NamedValues, Parameters, Tensor};

use crate::LearnError;
use crate::config::{DqnConfig, LearnerKind, PqnConfig, TrainConfig, ValueConfig};
use crate::metrics::ValueUpdateMetrics;
use crate::value::encoder::PlaneEncoder;
use crate::value::network::{Network, QHead, read_weights, write_weights};
use crate::value::player::{Trajectory, ValuePlayer};
use crate::value::replay::Replay;

/// The replay and the target network of DQN.
pub(crate) struct DqnMemory {
    /// Replay buffer.
    pub(crate) replay: Replay,
    /// Target network.
    pub(crate) target: Network,
}

/// The episodes of a step.
pub struct NetworkRollout {
    /// Seat of each game.
    pub seats: Vec<Seat>,
    /// Episode of each agent.
    pub episodes: Vec<Episode>,
    /// Trajectory of each agent.
    pub(crate) trajectories: Vec<Trajectory>,
}

/// The config sections that a training step reads.
#[derive(Debug, Clone, Copy)]
pub struct NetworkOptions<'a> {
    /// `learner`: `dqn` or `pqn`.
    pub learner: LearnerKind,
    /// `[train]`.
    pub train: &'a TrainConfig,
    /// `[value]`.
    pub value: &'a ValueConfig,
    /// `[dqn]`.
    pub dqn: &'a DqnConfig,
    /// `[pqn]`.
    pub pqn: &'a PqnConfig,
}

/// A network that learns to play from the feature planes of a game, without language.
pub struct NetworkLearner {
    /// Game.
    pub scenario: Box<dyn Scenario>,
    /// Split of its scenes.
    pub scenes: Scenes,
    pub(crate) encoder: PlaneEncoder,
    pub(crate) network: Network,
    /// Weights and their optimiser state.
    pub parameters: Parameters,
    /// of DQN
    pub(crate) memory: Option<DqnMemory>,
}

impl NetworkOptions<'_> {
    /// Returns the probability of a random action: it falls linearly from 1 to `value.epsilon` over `value.exploration` steps.
    pub(crate) fn epsilon(&self, step: usize) -> f64 {
        1.0 + completed(step, self.value.exploration) * (self.value.epsilon - 1.0)
    }

    /// Returns the optimiser's settings. The learning rate falls linearly to a tenth over `value.anneal` steps.
    pub(crate) fn optimiser(&self, step: usize, eps: f64) -> AdamW {
        let annealed = match self.value.anneal {
            0 => 0.0,
            steps => completed(step, steps),
        };
        AdamW {
            eps,
            ..self.train.adamw(self.train.lr * (1.0 - 0.9 * annealed))
        }
    }

    /// Returns the random numbers of a step's updates.
    pub(crate) fn random(&self, step: usize) -> Random {
        Random::new(seeds::derive(self.train.seed, "learning", &[step]))
    }
}

/// Returns the completed share of `steps`, at most 1.
pub(crate) fn completed(step: usize, steps: usize) -> f64 {
    match steps {
        0 => 1.0,
        steps => (step as f64 / steps as f64).min(1.0),
    }
}

impl NetworkLearner {
    /// Makes a learner with the weights of `value.network`, or with random ones.
    ///
    /// # Errors
    /// If the game has no planes, or the weights cannot be read or are of another network.
    ///
    /// # Panics
    /// If the learner trains no network.
    pub fn new(
        gpu: &Gpu,
        scenario: Box<dyn Scenario>,
        options: &NetworkOptions<'_>,
    ) -> Result<NetworkLearner, LearnError> {
        let encoder = PlaneEncoder::new(&*scenario, options.value)?;
        let is_dqn = options.learner == LearnerKind::Dqn;
        let head = QHead {
            actions: scenario.actions().len(),
            dueling: is_dqn,
            layer_norm: !is_dqn,
        };
        let seed = seeds::derive(options.train.seed, "network", &[]);
        let (network, parameters) = Network::fresh(gpu, &encoder, options.value, head, seed);
        if !options.value.network.is_empty() {
            let weights = read_weights(Path::new(&options.value.network), &network.shapes())?;
            network.write_all(&weights);
        }
        let memory = match options.learner {
            LearnerKind::Dqn => {
                let target = network.zeroed();
                target.write_all(&parameters.values()?);
                let replay = Replay::new(options.dqn.capacity, options.dqn.alpha);
                Some(DqnMemory { replay, target })
            }
            LearnerKind::Pqn => None,
            LearnerKind::MsGrpo => panic!("{NO_NETWORK}"),
        };
        Ok(NetworkLearner {
            scenes: Scenes::of(&*scenario)?,
            scenario,
            encoder,
            network,
            parameters,
            memory,
        })
    }

    /// Makes a learner with the weights of `value.network`, to play with.
    ///
    /// # Errors
    /// If `value.network` is empty, and as [`NetworkLearner::new`].
    pub fn trained(
        gpu: &Gpu,
        scenario: Box<dyn Scenario>,
        options: &NetworkOptions<'_>,
    ) -> Result<NetworkLearner, LearnError> {
        if options.value.network.is_empty() {
            return Err(LearnError::Network(format!(
                "no network to play with: value.network is empty; set it to the network of a run that trained {}",
                options.learner.name()
            )));
        }
        NetworkLearner::new(gpu, scenario, options)
    }

    /// Returns the referee. A network has no unreadable replies.
    pub fn referee(&self) -> Referee {
        Referee {
            step_limit: self.scenario.step_limit(),
            format_penalty: 0.0,
        }
    }

    /// Returns the network as a player without exploration.
    pub fn greedy_player(&self) -> ValuePlayer<'_> {
        ValuePlayer::greedy(&self.network, &self.encoder)
    }

    /// Makes an optimiser update. Returns its metrics and errors, or `None` if its loss or gradient is not finite.
    pub(crate) fn update(
        &mut self,
        loss: &Tensor,
        errors: &Tensor,
        targets: &[f32],
        optimiser: AdamW,
    ) -> Result<Option<(ValueUpdateMetrics, Vec<f64>)>, LearnError> {
        self.parameters.accumulate(&loss.backward());
        let norm = self.parameters.step(optimiser);
        let errors: Vec<f64> = errors.to_vec()?.into_iter().map(f64::from).collect();
        let (loss, norm) = (f64::from(loss.to_vec()?[0]), f64::from(norm.to_vec()?[0]));
        let count = targets.len() as f64;
        let metrics = ValueUpdateMetrics {
            updates: 1,
            td_loss: loss,
            td_error: errors.iter().map(|error| error.abs()).sum::<f64>() / count,
            q_target: targets.iter().map(|y| f64::from(*y)).sum::<f64>() / count,
            gradient_norm: norm,
            learning_rate: optimiser.lr,
            ..ValueUpdateMetrics::default()
        };
        Ok((loss.is_finite() && norm.is_finite()).then_some((metrics, errors)))
    }

    /// Describes the inputs of the network. A checkpoint with other inputs does not fit.
    pub fn fingerprint(&self) -> String {
        self.encoder.describe()
    }

    /// Returns replay and target network of DQN for a checkpoint. Empty for PQN.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn memory(&self) -> Result<Vec<NamedValues>, LearnError> {
        let mut values = Vec::new();
        if let Some(DqnMemory { replay, target }) = &self.memory {
            values = replay.to_values();
            for (name, shape, weights) in target.values()? {
                values.push((format!("{TARGET}{name}"), shape, weights));
            }
        }
        Ok(values)
    }

    /// Restores the result of [`NetworkLearner::memory`].
    ///
    /// # Panics
    /// If it is of another config.
    #[track_caller]
    pub fn restore_memory(&mut self, options: &NetworkOptions<'_>, values: &[NamedValues]) {
        let Some(memory) = &mut self.memory else {
            return;
        };
        let replay = Replay::new(options.dqn.capacity, options.dqn.alpha);
        memory.replay = replay.restored(values).expect("a replay of this config");
        for (name, _, values) in values {
            if let Some(name) = name.strip_prefix(TARGET) {
                memory.target.write(name, values);
            }
        }
    }

    /// Writes the network's weights to a file.
    ///
    /// # Errors
    /// If it cannot be written. A previous file stays.
    pub fn save_network(&self, path: &Path) -> Result<(), LearnError> {
        Ok(write_weights(path, &self.parameters.values()?)?)
    }
}

pub(super) const NO_NETWORK: &str = "ms-grpo trains a language model, not a network";
/// Prefix of the target network's weights in a checkpoint.
const TARGET: &str = "target.";
