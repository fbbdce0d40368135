//! `--opponent`: the player of the other sides of a game of several agents.

use std::path::Path;

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_play::config::GameConfig;
use lapwing_play::players::scripted::{RandomPlayer, ScriptedPlayer};
use lapwing_play::{Player, Progress};
use lapwing_tensor::Gpu;
use lapwing_train::Config;
use lapwing_train::config::ModelChoice;
use lapwing_train::record::directory::Trained;
use lapwing_train::state::{RunPurpose, State};

use super::agents::initial_model;
use super::loaded_model::InputError;
use crate::args;
use crate::hub::hub;

pub enum OpponentPlayer {
    Scripted,
    Random,
    /// A second model, with or without an adapter.
    Model(Box<State>),
}

impl OpponentPlayer {
    /// Loads the opponent of this name for games like this one.
    pub fn load(
        name: &str,
        gpu: &Gpu,
        scenario: &dyn Scenario,
        config: &Config,
        progress: &dyn Progress,
    ) -> Result<OpponentPlayer> {
        check(name, scenario)?;
        let initial = || initial_model(&config.model);
        let model = match name {
            "scripted" => return Ok(OpponentPlayer::Scripted),
            "random" => return Ok(OpponentPlayer::Random),
            "base" => initial()?,
            dir => match args::learned(Path::new(dir))? {
                Trained::Adapter(_) => ModelChoice {
                    adapter: Some(args::adapter("--opponent", Path::new(dir))?),
                    ..initial()?
                },
                Trained::Model(model) => ModelChoice {
                    dir: Some(model.to_owned()),
                    ..ModelChoice::default()
                },
            },
        };
        let config = Config {
            model,
            ..config.clone()
        };
        let game = GameConfig::of(scenario).scenario()?;
        let state = State::with_games(gpu, hub(), vec![game], config, RunPurpose::Play, progress)?;
        Ok(OpponentPlayer::Model(Box::new(state)))
    }

    /// Returns the player. A model samples its replies at this temperature.
    pub fn player(&mut self, temperature: f64) -> Box<dyn Player + '_> {
        match self {
            OpponentPlayer::Scripted => Box::new(ScriptedPlayer::default()),
            OpponentPlayer::Random => Box::new(RandomPlayer::default()),
            OpponentPlayer::Model(state) => Box::new(state.seated(0, temperature).2),
        }
    }
}

fn check(name: &str, scenario: &dyn Scenario) -> Result<()> {
    // Every game of several agents has a scripted and a random player.
    if scenario.agents() > 1 {
        return Ok(());
    }
    let game = scenario.name();
    let problem = format!("{game} has one agent; a game of several is snake-duel");
    Err(InputError::new(format!("--opponent {name}"), problem).into())
}
