//! What a run of a value learner holds: its config, its game, its network and how far it has come.

use std::path::Path;
use std::time::Instant;

use lapwing_env::Scenario;
use lapwing_tensor::random::Random;
use lapwing_tensor::{AdamW, Gpu, NamedValues, Parameters};

use crate::LearnError;
use crate::config::{Dqn, LearnerKind, Pqn, Train, Value};
use crate::metrics::StepMetrics;
use crate::value::network::{Heads, Network};
use crate::value::player::{Path as Seen, ValuePlayer};
use crate::value::replay::Replay;
use crate::value::sight::Shape;
use crate::value::{dqn, pqn, weights};
use lapwing_play::Progress;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::scenes::Scenes;
use lapwing_play::seeds;
use lapwing_play::{Episode, Referee, Seat};

/// What DQN has beside its network.
pub struct Memory {
    /// what was lived through
    pub replay: Replay,
    /// the network as it was a while ago, which values what comes next
    pub target: Network,
}

/// The episodes of a step.
pub struct Played {
    /// where each game was played
    pub seats: Vec<Seat>,
    /// what each agent did and got
    pub episodes: Vec<Episode>,
    /// what each agent saw
    pub paths: Vec<Seen>,
}

/// The config sections that a training step reads.
#[derive(Debug, Clone, Copy)]
pub struct NetworkOptions<'a> {
    /// `learner`: DQN or PQN
    pub learner: LearnerKind,
    /// `[train]`
    pub train: &'a Train,
    /// `[value]`
    pub value: &'a Value,
    /// `[dqn]`
    pub dqn: &'a Dqn,
    /// `[pqn]`
    pub pqn: &'a Pqn,
}

/// A network that learns to play from the feature planes of a game, without language.
pub struct NetworkLearner {
    /// the game
    pub scenario: Box<dyn Scenario>,
    /// which of its scenes are trained on
    pub scenes: Scenes,
    /// what is seen of it
    pub shape: Shape,
    /// who plays, on the tape
    pub network: Network,
    /// its weights and their optimiser state
    pub parameters: Parameters,
    /// with DQN
    pub memory: Option<Memory>,
}

/// The game and the network of a config, and the weights that it names.
struct Parts {
    scenario: Box<dyn Scenario>,
    shape: Shape,
    network: Network,
    parameters: Parameters,
}

fn parts(
    gpu: &Gpu,
    scenario: Box<dyn Scenario>,
    options: &NetworkOptions<'_>,
) -> Result<Parts, LearnError> {
    let shape = Shape::of(&*scenario, options.value)?;
    let is_dqn = options.learner == LearnerKind::Dqn;
    let heads = Heads {
        actions: scenario.actions().len(),
        dueling: is_dqn,
        layer_norm: !is_dqn,
    };
    let seed = seeds::derive(options.train.seed, "network", &[]);
    let (network, parameters) = Network::fresh(gpu, &shape, options.value, heads, seed);
    if !options.value.network.is_empty() {
        let weights = weights::read(Path::new(&options.value.network), &network.shapes())?;
        network.write_all(&weights);
    }
    Ok(Parts {
        scenario,
        shape,
        network,
        parameters,
    })
}

impl NetworkOptions<'_> {
    /// The chance of any action in this step: from 1 down to `value.epsilon`, in a straight line over `value.exploration`
    /// steps.
    pub fn epsilon(&self, step: usize) -> f64 {
        1.0 + done(step, self.value.exploration) * (self.value.epsilon - 1.0)
    }

    /// The optimiser's settings in this step. The rate goes down to a tenth in a straight line over `value.anneal` steps.
    pub fn knobs(&self, step: usize, eps: f64) -> AdamW {
        let train = self.train;
        let annealed = match self.value.anneal {
            0 => 0.0,
            steps => done(step, steps),
        };
        AdamW {
            lr: train.lr * (1.0 - 0.9 * annealed),
            beta1: train.betas[0],
            beta2: train.betas[1],
            eps,
            weight_decay: train.weight_decay,
            max_norm: train.max_grad_norm,
        }
    }

    /// The random numbers of this step's updates.
    pub fn random(&self, step: usize) -> Random {
        Random::new(seeds::derive(self.train.seed, "learning", &[step]))
    }
}

/// The share of so many steps that is done, at most 1; 1 of none.
pub fn done(step: usize, steps: usize) -> f64 {
    match steps {
        0 => 1.0,
        steps => (step as f64 / steps as f64).min(1.0),
    }
}

impl NetworkLearner {
    /// A run at its beginning, from the weights that the config names or from fresh ones.
    ///
    /// # Errors
    /// If the game has no planes, or the weights cannot be read or are of another network.
    pub fn new(
        gpu: &Gpu,
        scenario: Box<dyn Scenario>,
        options: &NetworkOptions<'_>,
    ) -> Result<NetworkLearner, LearnError> {
        let Parts {
            scenario,
            shape,
            network,
            parameters,
        } = parts(gpu, scenario, options)?;
        let memory = match options.learner {
            LearnerKind::Dqn => {
                let target = network.apart();
                target.write_all(&parameters.values()?);
                let replay = Replay::new(options.dqn.capacity, options.dqn.alpha);
                Some(Memory { replay, target })
            }
            _ => None,
        };
        Ok(NetworkLearner {
            scenes: Scenes::of(&*scenario)?,
            scenario,
            shape,
            network,
            parameters,
            memory,
        })
    }

    /// Who stops its episodes. Every action of a network can be read.
    pub fn referee(&self) -> Referee {
        Referee {
            step_limit: self.scenario.step_limit(),
            format_penalty: 0.0,
        }
    }

    /// Plays the episodes of a step, each on a scene of its own, exploring with the chance of [`NetworkOptions::epsilon`].
    ///
    /// # Errors
    /// If the game or the device fails.
    pub fn play(
        &self,
        options: &NetworkOptions<'_>,
        step: usize,
        progress: &dyn Progress,
    ) -> Result<Played, LearnError> {
        let seed = options.train.seed;
        let seat = |i| {
            let draw = |attempt| seeds::derive(seed, "scene", &[step, i, attempt]);
            Ok(Seat {
                scene: self.scenes.training(&*self.scenario, draw)?,
                luck: seeds::derive(seed, "luck", &[step, i]),
                reply: seeds::derive(seed, "reply", &[step, i]),
            })
        };
        let seats = (0..options.value.episodes).map(seat);
        let seats: Vec<Seat> = seats.collect::<Result<_, LearnError>>()?;
        let count = seats.len() * self.scenario.agents();
        progress.phase("rollout", count, "episodes");
        let mut player =
            ValuePlayer::exploring(&self.network, &self.shape, options.epsilon(step), count);
        let mut watch = |episodes: &[Episode]| progress.done(Episode::over(episodes));
        let referee = self.referee();
        let episodes = referee.play(&*self.scenario, &seats, &mut [&mut player], &mut watch)?;
        Ok(Played {
            seats,
            episodes,
            paths: player.into_paths(),
        })
    }

    /// Makes one step: plays, and learns from it.
    ///
    /// # Errors
    /// If the game or the device fails.
    pub fn step(
        &mut self,
        options: &NetworkOptions<'_>,
        step: usize,
        progress: &dyn Progress,
    ) -> Result<(StepMetrics, Played), LearnError> {
        let started = Instant::now();
        let mut played = self.play(options, step, progress)?;
        let seconds_rollout = started.elapsed().as_secs_f64();
        let started = Instant::now();
        let (value, updates_dropped) = match options.learner {
            LearnerKind::Pqn => pqn::learn(self, options, step, &mut played, progress)?,
            _ => dqn::learn(self, options, step, &played, progress)?,
        };
        let metrics = StepMetrics {
            step: step + 1,
            play: PlayMetrics::of(self.scenario.actions(), &played.episodes),
            seconds_rollout,
            seconds_update: started.elapsed().as_secs_f64(),
            updates_dropped,
            value,
            ..StepMetrics::default()
        };
        Ok((metrics, played))
    }

    /// What the network is for, in a line: a checkpoint of another is none for this run.
    pub fn fingerprint(&self) -> String {
        self.shape.describe()
    }

    /// Returns what DQN keeps beside its network: the replay and the target network. Empty for PQN.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn memory(&self) -> Result<Vec<NamedValues>, LearnError> {
        let mut values = Vec::new();
        if let Some(Memory { replay, target }) = &self.memory {
            values = replay.state();
            for (name, shape, weights) in target.values()? {
                values.push((format!("{TARGET}{name}"), shape, weights));
            }
        }
        Ok(values)
    }

    /// Restores what [`NetworkLearner::memory`] returned.
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
    /// If it cannot be written; what was there before stays.
    pub fn save_network(&self, path: &Path) -> Result<(), LearnError> {
        Ok(weights::write(path, &self.parameters.values()?)?)
    }
}

/// Of the target network's weights in a checkpoint.
const TARGET: &str = "target.";

/// A network that was trained, to play with.
pub struct Trained {
    /// the config's game
    pub scenario: Box<dyn Scenario>,
    network: Network,
    shape: Shape,
}

impl Trained {
    /// The network that the config names.
    ///
    /// # Errors
    /// If it names none, the game has no planes, or the weights cannot be read or are of another network.
    pub fn load(
        gpu: &Gpu,
        scenario: Box<dyn Scenario>,
        options: &NetworkOptions<'_>,
    ) -> Result<Trained, LearnError> {
        if options.value.network.is_empty() {
            return Err(LearnError::NoNetwork(options.learner.name()));
        }
        let parts = parts(gpu, scenario, options)?;
        Ok(Trained {
            scenario: parts.scenario,
            network: parts.network.without_gradients(),
            shape: parts.shape,
        })
    }

    /// At play.
    pub fn player(&self) -> ValuePlayer<'_> {
        ValuePlayer::greedy(&self.network, &self.shape)
    }
}
