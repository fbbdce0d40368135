//! What a run holds: the config, the game, the policy and its optimiser, and how far it has come.

use std::path::Path;

use lapwing_env::Scenario;
use lapwing_model::{Adapter, CompanionFiles, KvArena};
use lapwing_tensor::{Gpu, Parameters};

use crate::base::files::Files;
use crate::base::fingerprint::fingerprint;
use crate::learn::head::Head;
use crate::play::players::model::{ModelPlayer, Policy, Reference};
use crate::play::{Episode, Referee, Seat};
use crate::run::config::{Config, ConfigError, Game, Learner, Method, Weights};
use crate::run::memory::{self, Plan};
use crate::run::seeds;
use crate::run::snapshot::{Best, Snapshot};
use crate::run::world::World;
use crate::{Error, Progress};

/// Positions that the KV arena holds at first; it grows.
const ARENA_ROWS: usize = 4096;

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To teach an adapter, a fresh one or the one that the config names; or all of the model, as `train.weights` says.
    Train,
    /// To play, with the adapter that the config names or without one.
    Play,
}

/// A training run or an evaluation. All that is random follows from the config's seeds and the step, so that no generator
/// has a state of its own.
pub struct State {
    /// every knob; a model of the hub with its commit
    pub config: Config,
    /// the config's game, and after it those that are mixed into training
    pub worlds: Vec<World>,
    /// who plays
    pub policy: Policy,
    /// what the model is called
    pub model_name: String,
    /// a few digits that tell its files, and those of the adapter that training began from, from others
    pub fingerprint: String,
    /// the weights that learn and their optimiser state, in a run that trains
    pub parameters: Option<Parameters>,
    /// What lies beside the model's weights and is saved with them, in a run that trains them all.
    companions: Option<CompanionFiles>,
    /// what tells the worth of a state, in a run whose credit comes from a critic
    pub critic: Option<Head>,
    /// what replies are sampled at in training: that of the config, until it follows the spread of returns
    pub temperature: f64,
    /// projections of the last step's gradient, in a run that measures it; not saved
    pub gradient: Option<Vec<f64>>,
    /// steps of training done
    pub step: usize,
    /// the step of the last evaluation
    pub evaluated: Option<usize>,
    /// the best evaluation
    pub best: Option<Best>,
}

impl State {
    /// Reads all files, makes sure that the device has the memory, and loads. What is loaded is told to `progress`.
    ///
    /// # Errors
    /// If the game's options, the model or the adapter cannot be read, or do not fit the device.
    pub fn new(
        gpu: &Gpu,
        config: Config,
        purpose: Purpose,
        progress: &dyn Progress,
    ) -> Result<State, Error> {
        State::playing(gpu, config.game.scenario()?, config, purpose, progress)
    }

    /// The same with a game that need not be built in; the config's game is then this one.
    ///
    /// # Errors
    /// As [`State::new`].
    pub fn playing(
        gpu: &Gpu,
        scenario: Box<dyn Scenario>,
        config: Config,
        purpose: Purpose,
        progress: &dyn Progress,
    ) -> Result<State, Error> {
        State::load(gpu, vec![scenario], config, purpose, progress)
    }

    /// To play several games with one model; the config's game is then the first of them.
    ///
    /// # Errors
    /// As [`State::new`].
    ///
    /// # Panics
    /// If there are none.
    pub fn playing_all(
        gpu: &Gpu,
        scenarios: Vec<Box<dyn Scenario>>,
        config: Config,
        progress: &dyn Progress,
    ) -> Result<State, Error> {
        State::load(gpu, scenarios, config, Purpose::Play, progress)
    }

    fn load(
        gpu: &Gpu,
        scenarios: Vec<Box<dyn Scenario>>,
        mut config: Config,
        purpose: Purpose,
        progress: &dyn Progress,
    ) -> Result<State, Error> {
        if config.learner != Learner::MsGrpo {
            return Err(Error::NoLanguage(config.learner.name()));
        }
        config.game = Game::of(&*scenarios[0]);
        let trains = purpose == Purpose::Train;
        let whole = trains && config.train.weights == Weights::All;
        if whole && let Some(dir) = config.model.adapter_directory() {
            return Err(beside_an_adapter(dir).into());
        }
        let files = Files::of(&config.model.source()?, progress)?;
        if let Some(repository) = &files.repository {
            config.model.repo = repository.to_string();
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
        let stored = config.model.adapter_directory();
        let stored = stored.map(|dir| files.adapter(dir)).transpose()?;
        let companions = whole.then(|| files.checkpoint.companions()).transpose()?;
        if !trains {
            // They are mixed into training alone.
            config.mix.clear();
        }
        let mut worlds = World::all(scenarios, &config, files.tokenizer()?, template)?;

        // How long prompts get is seen from some scenes, however few are evaluated.
        let count = config.eval.episodes.max(16);
        let mut starts = Vec::new();
        for world in &mut worlds {
            starts.extend(world.starts(config.eval.seed, count)?);
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
            let (prompt, reply) = (demand.longest - demand.reply, demand.reply);
            return Err(Error::TooLong {
                prompt,
                reply,
                most,
            });
        }
        let plan = Plan::new(gpu.caps(), &files.checkpoint, &demand)?;
        progress.planned(&plan);
        let dirs = std::iter::once(files.checkpoint.dir()).chain(config.model.adapter_directory());
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
            (_, Purpose::Train) if whole => (None, all),
            (Some(stored), Purpose::Train) => {
                let (adapter, parameters) = Adapter::trained(&model, stored);
                (Some(adapter), Some(parameters))
            }
            (None, Purpose::Train) => {
                let seed = seeds::derive(config.train.seed, "adapter", &[]);
                let fresh = Adapter::new(&model, config.lora.clone(), seed)?;
                (Some(fresh.0), Some(fresh.1))
            }
            (stored, Purpose::Play) => (stored.as_ref().map(frozen), None),
        };
        let reference = match demand.frozen && trains {
            true => Some(Reference {
                model: match whole {
                    true => files.load_reference(gpu)?,
                    false => model.clone(),
                },
                adapter: stored.as_ref().map(frozen),
            }),
            false => None,
        };
        let critic = (trains && config.credit.method == Method::Critic).then(|| {
            let seed = seeds::derive(config.train.seed, "critic", &[]);
            Head::new(gpu, model.config().width, config.critic.hidden, seed)
        });
        let arena = KvArena::new(&model, ARENA_ROWS.min(plan.arena_rows), plan.arena_rows);
        Ok(State {
            temperature: config.policy.temperature,
            gradient: None,
            config,
            worlds,
            policy: Policy {
                model,
                adapter,
                reference,
                arena,
            },
            model_name: files.name.clone(),
            fingerprint,
            parameters,
            companions,
            critic,
            step: 0,
            evaluated: None,
            best: None,
        })
    }

    /// The config's game.
    pub fn world(&self) -> &World {
        &self.worlds[0]
    }

    /// The seats of the evaluation.
    ///
    /// # Errors
    /// If the game fails.
    pub fn evaluation_seats(&self) -> Result<Vec<Seat>, Error> {
        self.seats(0)
    }

    /// The seats of the evaluation in one of the worlds.
    ///
    /// # Errors
    /// If the game fails.
    ///
    /// # Panics
    /// If there are not so many worlds.
    #[track_caller]
    pub fn seats(&self, world: usize) -> Result<Vec<Seat>, Error> {
        let (eval, world) = (&self.config.eval, &self.worlds[world]);
        world
            .scenes
            .evaluation(&*world.scenario, eval.seed, eval.episodes)
    }

    /// One of the worlds, its referee, and the policy at play with replies sampled at this temperature.
    ///
    /// # Panics
    /// If there are not so many worlds.
    #[track_caller]
    pub fn seated(
        &mut self,
        world: usize,
        temperature: f64,
    ) -> (&dyn Scenario, Referee, ModelPlayer<'_>) {
        let world = &mut self.worlds[world];
        let referee = world.referee(&self.config.policy);
        let limit = self.config.policy.max_new_tokens;
        let player = self.policy.player(&mut world.prompts, temperature, limit);
        (&*world.scenario, referee, player)
    }

    /// Plays a game of one of the worlds for each seat, the policy on all sides.
    ///
    /// # Errors
    /// If the game, the model or the device fails.
    ///
    /// # Panics
    /// If there are not so many worlds.
    #[track_caller]
    pub fn play(
        &mut self,
        world: usize,
        seats: &[Seat],
        temperature: f64,
        progress: &dyn Progress,
    ) -> Result<Vec<Episode>, Error> {
        let (scenario, referee, mut player) = self.seated(world, temperature);
        let mut watch = |episodes: &[Episode]| progress.done(Episode::over(episodes));
        let episodes = referee.play(scenario, seats, &mut [&mut player], &mut watch)?;
        Episode::accidents(&episodes)
            .iter()
            .for_each(|told| progress.note(told));
        Ok(episodes)
    }

    /// Reads an adapter for the model at hand, to play with.
    ///
    /// # Errors
    /// If it cannot be read, or is for another model.
    pub fn adapter(&self, dir: &Path) -> Result<Adapter, Error> {
        let files = Files::of(&self.config.model.source()?, &())?;
        Ok(Adapter::frozen(&self.policy.model, &files.adapter(dir)?))
    }

    /// Optimiser updates done, those of a critic included.
    pub fn updates(&self) -> u64 {
        let steps = |parameters: &Parameters| parameters.steps();
        let critic = self.critic.as_ref().map(|critic| &critic.parameters);
        self.parameters.as_ref().map_or(0, steps) + critic.map_or(0, steps)
    }

    /// Takes out what was learned.
    ///
    /// # Errors
    /// If the device is lost.
    ///
    /// # Panics
    /// If the run does not train.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let parameters = self.parameters.as_ref().expect("a run that trains");
        let critic = self.critic.as_ref().map(|critic| &critic.parameters);
        Ok(Snapshot {
            step: self.step,
            temperature: self.temperature,
            evaluated: self.evaluated,
            best: self.best,
            updates: parameters.steps(),
            parameters: parameters.state()?,
            critic_updates: critic.map_or(0, Parameters::steps),
            critic: critic.map_or(Ok(Vec::new()), Parameters::state)?,
            memory: Vec::new(),
        })
    }

    /// Puts it back, into a state of the same config: what follows is what would have followed there.
    ///
    /// # Panics
    /// If the run does not train, or trains other weights.
    #[track_caller]
    pub fn restore(&mut self, snapshot: &Snapshot) {
        let parameters = self.parameters.as_mut().expect("a run that trains");
        parameters.restore(&snapshot.parameters, snapshot.updates);
        if let Some(critic) = &mut self.critic {
            let parameters = &mut critic.parameters;
            parameters.restore(&snapshot.critic, snapshot.critic_updates);
        }
        self.step = snapshot.step;
        self.temperature = snapshot.temperature;
        self.evaluated = snapshot.evaluated;
        self.best = snapshot.best;
    }

    /// Whether the model itself is trained, and not an adapter beside it.
    pub fn trains_model(&self) -> bool {
        self.companions.is_some()
    }

    /// Writes what was learned: the adapter as a PEFT directory, or the whole model as a Hugging Face directory, its weights
    /// in 32 bits, so that it plays just as it does here.
    ///
    /// # Errors
    /// If it cannot be written, or its weights are not finite; what was there before stays.
    ///
    /// # Panics
    /// If the run does not train and plays without an adapter.
    pub fn save(&self, dir: &Path) -> Result<(), Error> {
        if let Some(companions) = &self.companions {
            return Ok(self.policy.model.save_whole(dir, companions)?);
        }
        let base = self.config.model.source()?.name();
        let adapter = self.policy.adapter.as_ref().expect("a run has an adapter");
        Ok(adapter.save(dir, &base)?)
    }
}

/// An adapter to go on from, where the model itself is to be trained.
fn beside_an_adapter(dir: &Path) -> ConfigError {
    ConfigError::Range {
        key: "train.weights".to_owned(),
        found: "\"all\"".to_owned(),
        wanted: format!(
            "\"lora\" beside model.adapter; to train all weights from there on, work the adapter into them first (`lapwing \
             merge --adapter {} --out MODEL`) and name that (--model MODEL)",
            dir.display()
        ),
    }
}
