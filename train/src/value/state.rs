//! What a run of a value learner holds: its config, its game, its network and how far it has come.

use std::path::Path;

use lapwing_env::Scenario;
use lapwing_tensor::random::Random;
use lapwing_tensor::{AdamW, Gpu, Parameters};

use crate::play::scenes::Scenes;
use crate::play::{Episode, Referee, Seat};
use crate::run::config::{Config, Game, Learner};
use crate::run::seeds;
use crate::run::snapshot::{Best, Snapshot};
use crate::value::network::{Heads, Network};
use crate::value::player::{Path as Seen, ValuePlayer};
use crate::value::replay::Replay;
use crate::value::sight::Shape;
use crate::value::weights;
use crate::{Error, Progress};

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

/// A training run. All that is random follows from the config's seeds and the step, so that no generator has a state of its
/// own.
pub struct State {
    /// every knob
    pub config: Config,
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
    /// in a run of DQN
    pub memory: Option<Memory>,
    /// steps of training done
    pub step: usize,
    /// the step of the last evaluation
    pub evaluated: Option<usize>,
    /// the best evaluation
    pub best: Option<Best>,
}

/// The game and the network of a config, and the weights that it names.
struct Parts {
    scenario: Box<dyn Scenario>,
    shape: Shape,
    network: Network,
    parameters: Parameters,
}

fn parts(gpu: &Gpu, config: &Config) -> Result<Parts, Error> {
    let scenario = config.game.scenario()?;
    let shape = Shape::of(&*scenario, &config.value)?;
    let is_dqn = config.learner == Learner::Dqn;
    let heads = Heads {
        actions: scenario.actions().len(),
        dueling: is_dqn,
        layer_norm: !is_dqn,
    };
    let seed = seeds::derive(config.train.seed, "network", &[]);
    let (network, parameters) = Network::fresh(gpu, &shape, &config.value, heads, seed);
    if !config.value.network.is_empty() {
        let weights = weights::read(Path::new(&config.value.network), &network.shapes())?;
        network.write_all(&weights);
    }
    Ok(Parts {
        scenario,
        shape,
        network,
        parameters,
    })
}

impl State {
    /// A run at its beginning, from the weights that the config names or from fresh ones.
    ///
    /// # Errors
    /// If the game has no planes, or the weights cannot be read or are of another network.
    pub fn new(gpu: &Gpu, mut config: Config) -> Result<State, Error> {
        let Parts {
            scenario,
            shape,
            network,
            parameters,
        } = parts(gpu, &config)?;
        config.game = Game::of(&*scenario);
        let memory = match config.learner {
            Learner::Dqn => {
                let target = network.apart();
                target.write_all(&parameters.values()?);
                let replay = Replay::new(config.dqn.capacity, config.dqn.alpha);
                Some(Memory { replay, target })
            }
            _ => None,
        };
        Ok(State {
            scenes: Scenes::of(&*scenario)?,
            config,
            scenario,
            shape,
            network,
            parameters,
            memory,
            step: 0,
            evaluated: None,
            best: None,
        })
    }

    /// Who stops its episodes. Every action of a network can be read.
    pub fn referee(&self) -> Referee {
        Referee {
            step_limit: self.scenario.step_limit(),
            format_penalty: 0.0,
        }
    }

    /// The seats of the evaluation: those of every other run with this seed.
    ///
    /// # Errors
    /// If the game fails.
    pub fn evaluation_seats(&self) -> Result<Vec<Seat>, Error> {
        let eval = &self.config.eval;
        self.scenes
            .evaluation(&*self.scenario, eval.seed, eval.episodes)
    }

    /// Plays the episodes of a step, each on a scene of its own, exploring with the chance of [`State::epsilon`].
    ///
    /// # Errors
    /// If the game or the device fails.
    pub fn play(&self, progress: &dyn Progress) -> Result<Played, Error> {
        let (seed, step) = (self.config.train.seed, self.step);
        let seat = |i| {
            let draw = |attempt| seeds::derive(seed, "scene", &[step, i, attempt]);
            Ok(Seat {
                scene: self.scenes.training(&*self.scenario, draw)?,
                luck: seeds::derive(seed, "luck", &[step, i]),
                reply: seeds::derive(seed, "reply", &[step, i]),
            })
        };
        let seats = (0..self.config.value.episodes).map(seat);
        let seats: Vec<Seat> = seats.collect::<Result<_, Error>>()?;
        let count = seats.len() * self.scenario.agents();
        progress.phase("rollout", count, "episodes");
        let network = self.network.without_gradients();
        let mut player = ValuePlayer::exploring(&network, &self.shape, self.epsilon(), count);
        let mut watch = |episodes: &[Episode]| progress.done(Episode::over(episodes));
        let referee = self.referee();
        let episodes = referee.play(&*self.scenario, &seats, &mut [&mut player], &mut watch)?;
        Ok(Played {
            seats,
            episodes,
            paths: player.into_paths(),
        })
    }

    /// The chance of any action in this step: from 1 down to `value.epsilon`, in a straight line over `value.exploration`
    /// steps.
    pub fn epsilon(&self) -> f64 {
        let value = &self.config.value;
        1.0 + self.done(value.exploration) * (value.epsilon - 1.0)
    }

    /// The optimiser's knobs in this step. The rate goes down to a tenth in a straight line over `value.anneal` steps.
    pub fn knobs(&self, eps: f64) -> AdamW {
        let train = &self.config.train;
        let done = match self.config.value.anneal {
            0 => 0.0,
            steps => self.done(steps),
        };
        AdamW {
            lr: train.lr * (1.0 - 0.9 * done),
            beta1: train.betas[0],
            beta2: train.betas[1],
            eps,
            weight_decay: train.weight_decay,
            max_norm: train.max_grad_norm,
        }
    }

    /// How much of so many steps is done, 1 at most; of none all.
    pub fn done(&self, steps: usize) -> f64 {
        match steps {
            0 => 1.0,
            steps => (self.step as f64 / steps as f64).min(1.0),
        }
    }

    /// The chances that learning takes in this step.
    pub fn random(&self) -> Random {
        Random::new(seeds::derive(
            self.config.train.seed,
            "learning",
            &[self.step],
        ))
    }

    /// What the network is for, in a line: a checkpoint of another is none for this run.
    pub fn fingerprint(&self) -> String {
        self.shape.describe()
    }

    /// Takes out what was learned.
    ///
    /// # Errors
    /// If the device is lost.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut memory = Vec::new();
        if let Some(Memory { replay, target }) = &self.memory {
            memory = replay.state();
            for (name, shape, values) in target.values()? {
                memory.push((format!("{TARGET}{name}"), shape, values));
            }
        }
        Ok(Snapshot {
            critic_updates: 0,
            critic: Vec::new(),
            step: self.step,
            temperature: self.config.policy.temperature,
            evaluated: self.evaluated,
            best: self.best,
            updates: self.parameters.steps(),
            parameters: self.parameters.state()?,
            memory,
        })
    }

    /// Puts it back, into a state of the same config: what follows is what would have followed there.
    ///
    /// # Panics
    /// If it is of another config.
    #[track_caller]
    pub fn restore(&mut self, snapshot: &Snapshot) {
        self.parameters
            .restore(&snapshot.parameters, snapshot.updates);
        self.step = snapshot.step;
        self.evaluated = snapshot.evaluated;
        self.best = snapshot.best;
        let Some(memory) = &mut self.memory else {
            return;
        };
        let replay = Replay::new(self.config.dqn.capacity, self.config.dqn.alpha);
        let replay = replay.restored(&snapshot.memory);
        memory.replay = replay.expect("a replay of this config");
        for (name, _, values) in &snapshot.memory {
            if let Some(name) = name.strip_prefix(TARGET) {
                memory.target.write(name, values);
            }
        }
    }

    /// Writes the network's weights to a file.
    ///
    /// # Errors
    /// If it cannot be written; what was there before stays.
    pub fn save_network(&self, path: &Path) -> Result<(), Error> {
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
    pub fn load(gpu: &Gpu, config: &Config) -> Result<Trained, Error> {
        if config.value.network.is_empty() {
            return Err(Error::NoNetwork(config.learner.name()));
        }
        let parts = parts(gpu, config)?;
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
