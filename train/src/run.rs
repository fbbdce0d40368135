//! What a run holds: the configuration, the game, the agent and its optimiser.

use std::collections::HashSet;
use std::path::Path;

use lapwing_env::Scenario;
use lapwing_model::{Adapter, Arena, Sampling};
use lapwing_tensor::{Gpu, Parameters};

use crate::agent::{Agent, Prompts};
use crate::base;
use crate::config::Config;
use crate::error::Error;
use crate::evaluate;
use crate::rollout::{self, Episode, Referee, Seat};
use crate::seeds;

/// Positions that the KV arena holds at first; it grows.
const ARENA_ROWS: usize = 4096;

/// A training run or an evaluation.
pub struct Run {
    /// every knob
    pub config: Config,
    /// the configured game
    pub scenario: Box<dyn Scenario>,
    /// who plays
    pub agent: Agent,
    /// the adapter's weights and their optimiser state
    pub parameters: Parameters,
    /// the prompts met so far
    pub prompts: Prompts,
    /// keys and values of the prompts of one rollout
    pub arena: Arena,
    /// first observations of the evaluation's scenes
    held_out: HashSet<String>,
}

impl Run {
    /// Loads the model and makes a fresh adapter, or loads the one in `adapter`.
    ///
    /// # Errors
    /// If the game's options, the model or the adapter cannot be read.
    pub fn new(gpu: &Gpu, config: Config, adapter: Option<&Path>) -> Result<Run, Error> {
        let scenario = (lapwing_env::find(&config.game.name)?.configure)(&config.game.options())?;
        let mut agent = base::load_agent(gpu, config.model.directory())?;
        let (adapter, parameters) = match adapter {
            Some(dir) if dir.is_dir() => Adapter::load(&agent.model, dir)?,
            Some(dir) => return Err(Error::NoAdapter(dir.to_owned())),
            None => Adapter::new(
                &agent.model,
                config.lora.for_model()?,
                seeds::derive(config.train.seed, "adapter", &[]),
            ),
        };
        agent.adapter = Some(adapter);
        let held_out = evaluate::seats(config.eval.seed, config.eval.episodes)
            .iter()
            .map(|seat| scenario.start(seat.scene, seat.luck).observe())
            .collect();
        Ok(Run {
            prompts: Prompts::new(&*scenario, config.policy.reply),
            arena: Arena::new(&agent.model, ARENA_ROWS),
            config,
            scenario,
            agent,
            parameters,
            held_out,
        })
    }

    /// Plays an episode for each seat, with replies sampled at this temperature. `finished` is told how many are over.
    ///
    /// # Errors
    /// If the device, the model or its tokenizer fails.
    pub fn play(
        &mut self,
        seats: &[Seat],
        temperature: f64,
        finished: impl FnMut(usize),
    ) -> Result<Vec<Episode>, Error> {
        let referee = Referee {
            step_limit: self.scenario.step_limit(),
            format_penalty: self.config.policy.format_penalty,
            sampling: Sampling {
                temperature: temperature as f32,
                max_new_tokens: self.config.policy.max_new_tokens,
                stop: self.agent.tokenizer.stop_ids().to_vec(),
            },
        };
        let Run {
            agent,
            scenario,
            prompts,
            arena,
            ..
        } = self;
        Ok(rollout::play(
            agent,
            &**scenario,
            prompts,
            seats,
            &referee,
            arena,
            finished,
        )?)
    }

    /// Writes the adapter as a PEFT directory.
    ///
    /// # Errors
    /// If it cannot be written; what was there before stays.
    pub fn save_adapter(&self, dir: &Path) -> Result<(), Error> {
        let base = self
            .config
            .model
            .directory()
            .map_or(base::NAME.to_owned(), |dir| dir.display().to_string());
        let adapter = self.agent.adapter.as_ref().expect("a run has an adapter");
        Ok(adapter.save(dir, &base)?)
    }

    /// The scene that a group plays, none of the evaluation's.
    pub fn training_scene(&self, step: usize, group: usize) -> u64 {
        let scene =
            |attempt| seeds::derive(self.config.train.seed, "scene", &[step, group, attempt]);
        // A game with one scene only, such as a given map, has nothing to hold out.
        const ATTEMPTS: usize = 100;
        (0..ATTEMPTS)
            .map(scene)
            .find(|scene| {
                !self
                    .held_out
                    .contains(&self.scenario.start(*scene, 0).observe())
            })
            .unwrap_or(scene(0))
    }

    /// Whether an evaluation comes before this step.
    pub fn is_evaluated(&self, step: usize) -> bool {
        step == 0 || self.config.eval.every > 0 && step.is_multiple_of(self.config.eval.every)
    }
}
