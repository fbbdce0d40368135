//! What a run holds: the configuration, the game, the agent and its optimiser.

use std::collections::HashSet;
use std::path::Path;

use lapwing_env::Scenario;
use lapwing_model::{Adapter, Arena, Sampling, StoredAdapter};
use lapwing_tensor::{Gpu, Parameters};

use crate::agent::{Agent, Prompts};
use crate::base::{self, Files};
use crate::config::Config;
use crate::error::Error;
use crate::evaluate;
use crate::memory::{Demand, Plan};
use crate::progress::Progress;
use crate::rollout::{self, Episode, Referee, Seat};
use crate::seeds;

/// Positions that the KV arena holds at first; it grows.
const ARENA_ROWS: usize = 4096;

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To teach an adapter: a fresh one, or the one that the config names.
    Train,
    /// To play, with the adapter that the config names or without one.
    Play,
}

/// A training run or an evaluation.
pub struct Run {
    /// every knob
    pub config: Config,
    /// the configured game
    pub scenario: Box<dyn Scenario>,
    /// who plays
    pub agent: Agent,
    /// the adapter's weights and their optimiser state, in a run that trains
    pub parameters: Option<Parameters>,
    /// the prompts met so far
    pub prompts: Prompts,
    /// keys and values of the prompts of one rollout
    pub arena: Arena,
    /// first observations of the evaluation's scenes
    held_out: HashSet<String>,
}

impl Run {
    /// Reads all files, makes sure that the device has the memory, and loads. What is loaded is told to `progress`.
    ///
    /// # Errors
    /// If the game's options, the model or the adapter cannot be read, or do not fit the device.
    pub fn new(
        gpu: &Gpu,
        config: Config,
        purpose: Purpose,
        progress: &Progress,
    ) -> Result<Run, Error> {
        let scenario = (lapwing_env::find(&config.game.name)?.configure)(&config.game.options())?;
        let files = Files::open(config.model.directory())?;
        let tokenizer = files.tokenizer()?;
        let mut template = files.template()?;
        template.set(config.policy.template_variables());
        let stored = config.model.adapter_directory();
        let stored = stored.map(|dir| files.adapter(dir)).transpose()?;
        let prompts = Prompts::new(&*scenario, config.policy.reply);
        let held_out: HashSet<String> = evaluate::seats(config.eval.seed, config.eval.episodes)
            .iter()
            .map(|seat| scenario.start(seat.scene, seat.luck).observe())
            .collect();

        let mut starts = Vec::new();
        for observation in &held_out {
            starts.push(tokenizer.encode(&prompts.text(&template, observation)?)?);
        }
        let demand = demand(&config, purpose, &files, stored.as_ref(), &starts)?;
        let most = files.checkpoint.config().max_positions;
        if demand.longest > most {
            let longest = demand.longest;
            return Err(Error::TooLong { longest, most });
        }
        let plan = Plan::new(gpu.caps(), &files.checkpoint, &demand)?;
        progress.line(&plan.to_string());
        let model = files.load(gpu, progress)?;
        let model = model.with_checkpointing(plan.checkpointing);

        let frozen = |stored| Adapter::frozen(&model, stored);
        let (adapter, parameters) = match (&stored, purpose) {
            (Some(stored), Purpose::Train) => {
                let (adapter, parameters) = Adapter::trained(&model, stored);
                (Some(adapter), Some(parameters))
            }
            (None, Purpose::Train) => {
                let seed = seeds::derive(config.train.seed, "adapter", &[]);
                let fresh = Adapter::new(&model, config.lora.for_model(), seed)?;
                (Some(fresh.0), Some(fresh.1))
            }
            (stored, Purpose::Play) => (stored.as_ref().map(frozen), None),
        };
        let reference = match purpose {
            Purpose::Train => stored.as_ref().map(frozen),
            Purpose::Play => None,
        };
        let mut arena = Arena::new(&model, ARENA_ROWS.min(plan.arena_rows));
        arena.set_most_rows(plan.arena_rows);
        Ok(Run {
            prompts,
            arena,
            config,
            scenario,
            agent: Agent {
                model,
                adapter,
                reference,
                tokenizer: tokenizer.clone(),
                template,
            },
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
                ..Sampling::default()
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

/// What the memory of a run depends on. `starts` are the prompts of the evaluation's first turns.
fn demand(
    config: &Config,
    purpose: Purpose,
    files: &Files,
    stored: Option<&StoredAdapter>,
    starts: &[Vec<u32>],
) -> Result<Demand, Error> {
    let fresh = || {
        config
            .lora
            .for_model()
            .parameters(files.checkpoint.config())
    };
    let numbers = stored.map_or(0, StoredAdapter::parameters);
    let (trained, used) = match (purpose, stored) {
        (Purpose::Play, _) => (0, numbers),
        (Purpose::Train, Some(_)) => (numbers, numbers),
        (Purpose::Train, None) => (fresh()?, 0),
    };
    let train = purpose == Purpose::Train;
    let seats = config.train.groups.saturating_mul(config.train.group_size);
    let alike = |other: &Vec<u32>| {
        starts[0]
            .iter()
            .zip(other)
            .take_while(|(a, b)| a == b)
            .count()
    };
    let shared = starts.iter().map(alike).min().unwrap_or(0);
    let prompt = starts.iter().map(Vec::len).max().unwrap_or(0);
    Ok(Demand {
        trained,
        used,
        rank: stored.map_or(config.lora.rank, StoredAdapter::rank),
        tokens_per_batch: if train {
            config.train.tokens_per_batch
        } else {
            0
        },
        // Later observations may be longer than the first.
        longest: prompt + (prompt - shared) / 2 + config.policy.max_new_tokens,
        shared,
        episodes: config.eval.episodes.max(if train { seats } else { 0 }),
        cure: "set policy.max_new_tokens lower, or use a smaller model",
    })
}
