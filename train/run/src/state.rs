//! The state of a run: config, games, policy, optimiser, and progress.

use std::path::Path;

use lapwing_env::{GAMES, Scenario};
use lapwing_model::{Adapter, Hub, KvArena};
use lapwing_tensor::Gpu;

use crate::Error;
use crate::base::files::Files;
use crate::base::fingerprint::fingerprint;
use crate::base::source::ModelSource;
use crate::config::{Config, ConfigError};
use crate::learner::Learner;
use crate::memory;
use crate::memory::MemoryPlan;
use crate::snapshot::{Best, Snapshot};
use lapwing_learn::communicator::Alone;
use lapwing_learn::config::{AdvantageEstimator, Weights};
use lapwing_learn::critic::Head;
use lapwing_learn::language::LanguageLearner;
use lapwing_learn::value::learner::NetworkLearner;
use lapwing_play::Progress;
use lapwing_play::config::GameConfig;
use lapwing_play::players::model::{ModelPlayer, Policy, Reference};
use lapwing_play::seeds;
use lapwing_play::world::World;
use lapwing_play::{Referee, Seat};

/// Positions in the KV arena at first; it grows.
const ARENA_ROWS: usize = 4096;

/// The purpose of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunPurpose {
    /// Training: a new adapter, the adapter that the config names, or all weights, depending on `train.weights`.
    Train,
    /// Playing, with the adapter that the config names or without one.
    Play,
}

/// A training run or an evaluation. All randomness follows from the config's seeds and the step, so there is no
/// generator state.
pub struct State<L = LanguageLearner> {
    /// every setting; a model of the hub has its commit
    pub config: Config,
    /// the learner or player
    pub learner: L,
    /// the name of the model
    pub model_name: String,
    /// the fingerprint of the model and of the starting adapter
    pub fingerprint: String,
    /// the memory plan of a language model
    pub plan: Option<MemoryPlan>,
    /// training steps completed
    pub step: usize,
    /// the step of the last evaluation
    pub evaluated: Option<usize>,
    /// the best evaluation
    pub best: Option<Best>,
}

/// Checks that the learner of a config has a language model.
///
/// # Errors
/// If it has none.
pub fn check_language(config: &Config) -> Result<(), Error> {
    if config.learner.has_language() {
        return Ok(());
    }
    Err(Error::Unusable(format!(
        "learner = \"{}\" has no language model: only train, play and `eval RUN` can use its network",
        config.learner.name()
    )))
}

impl State {
    /// Reads all files, plans the memory, and loads. Reports its progress to `progress`. Only models of the Hugging
    /// Face hub need `hub`.
    ///
    /// # Errors
    /// If the game's options, the model or the adapter cannot be read, or do not fit the device.
    pub fn new(
        gpu: &Gpu,
        hub: Option<&Hub>,
        config: Config,
        purpose: RunPurpose,
        progress: &dyn Progress,
    ) -> Result<State, Error> {
        let game = config.game.scenario()?;
        State::with_games(gpu, hub, vec![game], config, purpose, progress)
    }

    /// Does the same with one or more given games, which need not be built in. All can be played, and the first one
    /// trained on. It replaces the config's game. To play with what was trained, do so again with `model.adapter`.
    ///
    /// # Errors
    /// As [`State::new`].
    ///
    /// # Panics
    /// If there are no games, or the first one breaks a rule of [`Scenario`].
    #[track_caller]
    pub fn with_games(
        gpu: &Gpu,
        hub: Option<&Hub>,
        scenarios: Vec<Box<dyn Scenario>>,
        mut config: Config,
        purpose: RunPurpose,
        progress: &dyn Progress,
    ) -> Result<State, Error> {
        check_language(&config)?;
        config.game = GameConfig::of(&*scenarios[0]);
        let trains = purpose == RunPurpose::Train;
        let whole = trains && config.train.weights == Weights::All;
        if whole && let Some(dir) = config.model.adapter.as_deref() {
            return Err(beside_an_adapter(dir).into());
        }
        let files = Files::of(&config.model, hub, progress)?;
        if let Some(repository) = &files.repository {
            config.model.repo = Some(repository.clone());
        }
        let mut template = files.template()?;
        template.set(config.policy.template_variables()?)?;
        for name in config.policy.chat_template_kwargs.keys() {
            if !files.mentions(name) {
                progress.note(&format!(
                    "policy.chat_template_kwargs.{name} has no effect: the model's chat template does not mention it"
                ));
            }
        }
        let stored = config.model.adapter.as_deref();
        let stored = stored.map(|dir| files.adapter(dir)).transpose()?;
        let companions = whole.then(|| files.checkpoint.companions()).transpose()?;
        if !trains {
            // Mixed-in games are for training only.
            config.mix.clear();
        }
        let (tokenizer, policy) = (files.tokenizer()?, &config.policy);
        let mut worlds = World::all(
            scenarios,
            &config.game,
            &config.mix,
            policy,
            tokenizer,
            template,
        )?;

        // The length of prompts is estimated from some scenes, even if fewer are evaluated.
        let count = config.eval.episodes.max(16);
        let mut starts = Vec::new();
        for world in &mut worlds {
            starts.extend(world.starts(config.eval.seed, count)?);
            let longest = world.prompts.check_replies(&config.policy)?;
            let is_fresh = stored.is_none() && config.model.source()? == ModelSource::BuiltIn;
            let is_known = GAMES.iter().any(|game| game.name == world.scenario.name());
            let name = &world.name;
            let limit = match longest.filter(|_| is_fresh) {
                Some((2.., reply)) => {
                    format!("replies with one token, and {name} needs replies such as {reply:?}")
                }
                Some(_) if !is_known => "has read only prompts of the built-in games".to_owned(),
                _ => continue,
            };
            progress.note(&format!(
                "the built-in model {limit}; if it does not learn {name}, use another model (--model)"
            ));
        }
        let agents = worlds.iter().map(|world| world.scenario.agents()).max();
        let turns = worlds.iter().map(|world| world.scenario.step_limit()).max();
        let demand = memory::demand(
            &config,
            trains,
            &files.checkpoint,
            stored.as_ref(),
            agents.unwrap_or(1),
            turns.unwrap_or(0),
            &starts,
        )?;
        let most = files.checkpoint.config().max_positions;
        if demand.longest > most {
            let prompt = demand.longest - demand.reply;
            return Err(Error::too_long(prompt, demand.reply, most));
        }
        let plan = MemoryPlan::new(gpu.caps(), &files.checkpoint, &demand)?;
        if trains || plan.is_tight() {
            progress.line(&plan.to_string());
        }
        let choice = &config.model;
        let others = [choice.adapter.as_deref(), choice.tokenizer.as_deref()];
        let dirs = std::iter::once(files.checkpoint.dir()).chain(others.into_iter().flatten());
        let fingerprint = fingerprint(&dirs.collect::<Vec<_>>())?;
        let (model, all) = match whole {
            true => {
                let (model, parameters) = files.load_trained(gpu, progress)?;
                (model, Some(parameters))
            }
            false => (files.load(gpu, progress)?, None),
        };
        let model = model.with_recomputation(plan.recomputes);

        let frozen = |stored| Adapter::frozen(&model, stored);
        let (adapter, parameters) = match (&stored, purpose) {
            (_, RunPurpose::Train) if whole => (None, all),
            (Some(stored), RunPurpose::Train) => {
                let (adapter, parameters) = Adapter::trained(&model, stored);
                (Some(adapter), Some(parameters))
            }
            (None, RunPurpose::Train) => {
                let seed = seeds::derive(config.train.seed, "adapter", &[]);
                let fresh = Adapter::new(&model, config.lora.clone(), seed)?;
                (Some(fresh.0), Some(fresh.1))
            }
            (stored, RunPurpose::Play) => (stored.as_ref().map(frozen), None),
        };
        let reference = match trains && config.train.beta > 0.0 {
            true => Some(Reference {
                model: match whole {
                    true => files.load_reference(gpu)?,
                    false => model.clone(),
                },
                adapter: stored.as_ref().map(frozen),
            }),
            false => None,
        };
        let critic = (trains && config.credit.method == AdvantageEstimator::Critic).then(|| {
            let seed = seeds::derive(config.train.seed, "critic", &[]);
            Head::new(gpu, model.config().width, config.critic.hidden, seed)
        });
        let arena = KvArena::new(&model, ARENA_ROWS.min(plan.arena_rows), plan.arena_rows);
        Ok(State {
            learner: LanguageLearner {
                worlds,
                policy: Policy {
                    model,
                    adapter,
                    reference,
                    arena,
                },
                parameters,
                critic,
                unsolved: Vec::new(),
                temperature: config.policy.temperature,
                companions,
                gradient: None,
                ranks: Box::new(Alone),
                tokens_computed: 0,
            },
            config,
            model_name: files.name.clone(),
            fingerprint,
            plan: Some(plan),
            step: 0,
            evaluated: None,
            best: None,
        })
    }

    /// Returns the run's own game.
    pub fn world(&self) -> &World {
        self.learner.world()
    }

    /// Returns one of the worlds, its referee, and the policy as a player that samples at this temperature.
    ///
    /// # Panics
    /// If there is no such world.
    #[track_caller]
    pub fn seated(
        &mut self,
        world: usize,
        temperature: f64,
    ) -> (&dyn Scenario, Referee, ModelPlayer<'_>) {
        let learner = &mut self.learner;
        learner.seated(&self.config.policy, world, temperature)
    }

    /// Returns whether the model itself is trained instead of an adapter.
    pub fn trains_model(&self) -> bool {
        self.learner.companions.is_some()
    }
}

impl State<NetworkLearner> {
    /// Makes a new DQN or PQN run, from the weights that the config names or from random ones.
    ///
    /// # Errors
    /// If the game has no planes, or the weights cannot be read or are of another network.
    pub fn network(gpu: &Gpu, mut config: Config) -> Result<State<NetworkLearner>, Error> {
        let learner = NetworkLearner::new(gpu, config.game.scenario()?, &config.network())?;
        config.game = GameConfig::of(&*learner.scenario);
        Ok(State {
            model_name: config.learner.name().to_owned(),
            fingerprint: learner.fingerprint(),
            config,
            learner,
            plan: None,
            step: 0,
            evaluated: None,
            best: None,
        })
    }
}

impl<L: Learner> State<L> {
    /// Returns the seats of the evaluation.
    ///
    /// # Errors
    /// If the game fails.
    pub fn evaluation_seats(&self) -> Result<Vec<Seat>, Error> {
        let (eval, (scenario, scenes)) = (&self.config.eval, self.learner.game());
        Ok(scenes.evaluation(scenario, eval.seed, eval.episodes)?)
    }

    /// Copies the learned state into a snapshot.
    ///
    /// # Errors
    /// If the device is lost.
    ///
    /// # Panics
    /// If the run does not train.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let mut snapshot = Snapshot {
            step: self.step,
            evaluated: self.evaluated,
            best: self.best,
            ..Snapshot::default()
        };
        self.learner.capture(&mut snapshot)?;
        Ok(snapshot)
    }

    /// Restores a snapshot of a run with the same config. Training continues as it would have continued there.
    ///
    /// # Panics
    /// If the run does not train, or trains other weights.
    #[track_caller]
    pub fn restore(&mut self, snapshot: &Snapshot) {
        self.learner.restore(&self.config, snapshot);
        self.step = snapshot.step;
        self.evaluated = snapshot.evaluated;
        self.best = snapshot.best;
    }

    /// Writes the trained weights: an adapter as a PEFT directory; a whole model as a Hugging Face directory with
    /// weights in 32 bits, so that it plays exactly as here; or a network as a file.
    ///
    /// # Errors
    /// If it cannot be written, or its weights are not finite; then the earlier files stay.
    ///
    /// # Panics
    /// If the run does not train and plays without an adapter.
    pub fn save(&self, place: &Path) -> Result<(), Error> {
        self.learner.save(&self.config, place)
    }
}

/// The error of a starting adapter in a run that trains the model itself.
fn beside_an_adapter(dir: &Path) -> ConfigError {
    let wanted = format!(
        "\"lora\" beside model.adapter; to train all weights from there on, work the adapter into them first (`lapwing \
         merge --adapter {} --out MODEL`) and name that (--model MODEL)",
        dir.display()
    );
    ConfigError::range("train.weights", "\"all\"", wanted)
}
