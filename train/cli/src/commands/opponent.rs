//! `--opponent`: who plays the other sides of a game of several agents.

use std::path::Path;

use anyhow::Result;
use lapwing_env::Scenario;
use lapwing_play::Player;
use lapwing_play::Progress;
use lapwing_play::config::Game;
use lapwing_play::players::scripted::{Random, Scripted};
use lapwing_tensor::Gpu;
use lapwing_train::Config;
use lapwing_train::config::Model;
use lapwing_train::record::directory::Trained;
use lapwing_train::state::{Purpose, State};

use super::agents::begun_from;
use super::subject::InputError;
use crate::args;
use crate::hub::hub;

/// Somebody who plays the other sides.
pub enum Opponent {
    Scripted,
    Random,
    /// Loaded beside the one that is examined, with an adapter of its own or none.
    Model(Box<State>),
}

impl Opponent {
    /// Who was asked for, in games like this one.
    ///
    /// # Errors
    /// If the game has one agent, there is no such adapter, or there is no room for a second model.
    pub fn load(
        who: &str,
        gpu: &Gpu,
        scenario: &dyn Scenario,
        config: &Config,
        progress: &dyn Progress,
    ) -> Result<Opponent> {
        check(who, scenario)?;
        match who {
            "scripted" => return Ok(Opponent::Scripted),
            "random" => return Ok(Opponent::Random),
            _ => (),
        }
        let mut config = config.clone();
        config.model = match who {
            "base" => begun_from(&config.model)?,
            dir => match args::learned(Path::new(dir))? {
                Trained::Adapter(_) => Model {
                    adapter: Some(args::adapter(Path::new(dir))?),
                    ..begun_from(&config.model)?
                },
                Trained::Model(model) => Model {
                    dir: Some(model.to_owned()),
                    ..Model::default()
                },
            },
        };
        let game = Game::of(scenario).scenario()?;
        let state = State::with_games(gpu, hub(), vec![game], config, Purpose::Play, progress)?;
        Ok(Opponent::Model(Box::new(state)))
    }

    /// At play, with replies sampled at this temperature if it is a model.
    pub fn player(&mut self, temperature: f64) -> Box<dyn Player + '_> {
        match self {
            Opponent::Scripted => Box::new(Scripted::default()),
            Opponent::Random => Box::new(Random::default()),
            Opponent::Model(state) => Box::new(state.seated(0, temperature).2),
        }
    }
}

fn check(who: &str, scenario: &dyn Scenario) -> Result<()> {
    let wrong = |problem: String| Err(InputError::new(format!("--opponent {who}"), problem).into());
    if scenario.agents() == 1 {
        return wrong(format!(
            "{} has one agent, and nobody to meet; a game of several is snake-duel",
            scenario.name()
        ));
    }
    let start = scenario.start(0, 0)?;
    if who == "scripted" && start.best_actions(1).is_none() {
        return wrong(format!("{} has no scripted player", scenario.name()));
    }
    if who == "random" && scenario.takes_text() {
        return wrong(format!(
            "{} takes any text, which nobody says at random",
            scenario.name()
        ));
    }
    Ok(())
}
