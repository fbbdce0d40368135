//! The games of a run: its own and those mixed into its training.

use std::ops::Range;
use std::sync::Arc;

use lapwing_env::Scenario;
use lapwing_env::rng::Stream;
use lapwing_model::{ChatTemplate, Tokenizer};

use crate::PlayError;
use crate::config::{GameConfig, MixConfig, PolicyConfig};
use crate::prompt::Prompts;
use crate::scenes::Scenes;
use crate::seeds;
use crate::{AgentView, PromptWriter};

/// A game with its scenes and prompts.
pub struct World {
    /// its name in records: the name of the game, and of the probe if there is one
    pub name: String,
    /// the configured game
    pub scenario: Box<dyn Scenario>,
    /// its training and held-out scenes
    pub scenes: Scenes,
    /// its prompts
    pub prompts: Prompts,
    steps: Range<usize>,
    /// its share of a step's groups
    share: f64,
}

impl World {
    /// Returns these games and those that the config mixes in.
    ///
    /// # Errors
    /// If a game fails, or a prompt template is none.
    pub fn all(
        scenarios: Vec<Box<dyn Scenario>>,
        own: &GameConfig,
        mix: &[MixConfig],
        policy: &PolicyConfig,
        tokenizer: &Tokenizer,
        template: ChatTemplate,
    ) -> Result<Vec<World>, PlayError> {
        let template = Arc::new(template);
        let world = |scenario: Box<dyn Scenario>| -> Result<World, PlayError> {
            let framing = PromptWriter::new(&*scenario, policy)?;
            Ok(World {
                name: scenario.name().to_owned(),
                scenes: Scenes::of(&*scenario)?,
                prompts: Prompts::new(framing, tokenizer.clone(), template.clone()),
                scenario,
                steps: 0..usize::MAX,
                share: 1.0,
            })
        };
        let mut worlds: Vec<World> = scenarios.into_iter().map(world).collect::<Result<_, _>>()?;
        for mix in mix {
            worlds.push(World {
                name: mix.title(own),
                steps: mix.steps(),
                share: mix.share,
                ..world(mix.scenario(own)?)?
            });
        }
        Ok(worlds)
    }

    /// Returns the index of the game that a group of a step plays.
    pub fn drawn(worlds: &[World], seed: u64, step: usize, group: usize) -> usize {
        let mut left = Stream::new(seeds::derive(seed, "mix", &[step, group]), "mix").unit();
        for (number, world) in worlds.iter().enumerate().skip(1) {
            if world.steps.contains(&step) {
                left -= world.share;
                if left < 0.0 {
                    return number;
                }
            }
        }
        0
    }

    /// Returns the prompts of the first turn on these scenes.
    ///
    /// # Errors
    /// If the game or a template fails.
    pub fn starts(&mut self, seed: u64, count: usize) -> Result<Vec<Vec<u32>>, PlayError> {
        let seats = self.scenes.evaluation(&*self.scenario, seed, count)?;
        let mut starts = Vec::new();
        for seat in &seats {
            let observation = self.scenario.start(seat.scene, seat.luck)?.observe(0)?;
            let seen = AgentView {
                seed: seat.reply,
                ..AgentView::first(&observation)
            };
            starts.push(self.prompts.ids(&seen)?.to_vec());
        }
        Ok(starts)
    }
}
