//! `--opponent`: the player of the other sides of a game of several agents.

use std::path::Path;

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_play::config::Game;
use lapwing_play::players::scripted::{Random, Scripted};
use lapwing_play::{Player, Progress};
use lapwing_tensor::Gpu;
use lapwing_train::Config;
use lapwing_train::config::Model;
use lapwing_train::record::directory::Trained;
use lapwing_train::state::{Purpose, State};

use super::agents::initial_model;
use super::loaded_model::InputError;
use crate::args;
use crate::hub::hub;

pub enum Opponent {
    Scripted,
    Random,
    /// A second model, with or without an adapter.
    Model(Box<State>),
}

impl Opponent {
    /// Loads the opponent of this name for games like this one.
    ///
    /// # Errors
    /// If the game has one agent, the adapter or model cannot be loaded, or the memory does not suffice.
    pub fn load(
        name: &str,
        gpu: &Gpu,
        scenario: &dyn Scenario,
        config: &Config,
        progress: &dyn Progress,
    ) -> Result<Opponent> {
        check(name, scenario)?;
        let initial = || initial_model(&config.model);
        let model = match name {
            "scripted" => return Ok(Opponent::Scripted),
            "random" => return Ok(Opponent::Random),
            "base" => initial()?,
            dir => match args::learned(Path::new(dir))? {
                Trained::Adapter(_) => Model {
                    adapter: Some(args::adapter(Path::new(dir))?),
                    ..initial()?
                },
                Trained::Model(model) => Model {
                    dir: Some(model.to_owned()),
                    ..Model::default()
                },
            },
        };
        let config = Config {
            model,
            ..config.clone()
        };
        let game = Game::of(scenario).scenario()?;
        let state = State::with_games(gpu, hub(), vec![game], config, Purpose::Play, progress)?;
        Ok(Opponent::Model(Box::new(state)))
    }

    /// Returns the player. A model samples its replies at this temperature.
    pub fn player(&mut self, temperature: f64) -> Box<dyn Player + '_> {
        match self {
            Opponent::Scripted => Box::new(Scripted::default()),
            Opponent::Random => Box::new(Random::default()),
            Opponent::Model(state) => Box::new(state.seated(0, temperature).2),
        }
    }
}

fn check(name: &str, scenario: &dyn Scenario) -> Result<()> {
    let game = scenario.name();
    let problem = if scenario.agents() == 1 {
        format!("{game} has one agent; a game of several is snake-duel")
    } else if name == "scripted" && scenario.start(0, 0)?.best_actions(1).is_none() {
        format!("{game} has no scripted player")
    } else if name == "random" && scenario.takes_text() {
        format!("{game} takes any text, so it has no random player")
    } else {
        return Ok(());
    };
    Err(InputError::new(format!("--opponent {name}"), problem).into())
}
