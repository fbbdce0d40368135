//! Splits a game's scenes into training and held-out scenes. The split depends on the scene alone, not on seeds,
//! numbers of episodes or runs, so that no run trains on a scene that another evaluates.

use lapwing_env::Scenario;

use crate::PlayError;
use crate::Seat;
use crate::seeds;

/// One scene in this many is held out.
const HELD_OUT_ONE_IN: u64 = 5;
/// Number of scenes that are tried to find whether a game's scenes can be split.
const PROBES: usize = 64;
const MAX_DRAWS: usize = 10_000;

/// The split of one game's scenes.
#[derive(Debug, Clone, Copy)]
pub struct Scenes {
    divided: bool,
}

impl Scenes {
    /// Checks whether the game has scenes of both kinds. A game with a single scene, such as a given map, holds nothing
    /// out: training and evaluation use the same scene.
    ///
    /// # Errors
    /// If the game fails.
    pub fn of(scenario: &dyn Scenario) -> Result<Scenes, PlayError> {
        let mut held_out = 0;
        for probe in 0..PROBES {
            held_out += usize::from(is_held_out(scenario, seeds::derive(0, "probe", &[probe]))?);
        }
        Ok(Scenes {
            divided: (1..PROBES).contains(&held_out),
        })
    }

    /// Returns whether training and evaluation have different scenes.
    pub fn divided(&self) -> bool {
        self.divided
    }

    /// Returns a training scene: the first of `draw(0)`, `draw(1)`, ... that is not held out.
    ///
    /// # Errors
    /// If the game fails, or has no such scene.
    pub fn training(
        &self,
        scenario: &dyn Scenario,
        draw: impl Fn(usize) -> u64,
    ) -> Result<u64, PlayError> {
        self.first(scenario, false, draw)
    }

    /// Returns the seats of an evaluation, which depend on the seed only. Fewer seats are the first of more.
    ///
    /// # Errors
    /// If the game fails, or has no such scene.
    pub fn evaluation(
        &self,
        scenario: &dyn Scenario,
        seed: u64,
        episodes: usize,
    ) -> Result<Vec<Seat>, PlayError> {
        let seat = |i| {
            let draw = |attempt| seeds::derive(seed, "evaluation scene", &[i, attempt]);
            Ok(Seat {
                scene: self.first(scenario, true, draw)?,
                luck: seeds::derive(seed, "evaluation luck", &[i]),
                reply: seeds::derive(seed, "evaluation reply", &[i]),
            })
        };
        (0..episodes).map(seat).collect()
    }

    fn first(
        &self,
        scenario: &dyn Scenario,
        kept: bool,
        draw: impl Fn(usize) -> u64,
    ) -> Result<u64, PlayError> {
        for scene in (0..MAX_DRAWS).map(draw) {
            if !self.divided || is_held_out(scenario, scene)? == kept {
                return Ok(scene);
            }
        }
        Err(PlayError::NoScene {
            game: scenario.name().to_owned(),
            kept,
        })
    }
}

/// Returns whether a scene is held out, by a hash of the state's key: the smallest key of all agents, so that their
/// order does not matter.
fn is_held_out(scenario: &dyn Scenario, scene: u64) -> Result<bool, PlayError> {
    let game = scenario.start(scene, 0)?;
    let mut least = game.key(0)?;
    for agent in 1..scenario.agents() {
        least = least.min(game.key(agent)?);
    }
    Ok(seeds::derive(0, &least, &[]).is_multiple_of(HELD_OUT_ONE_IN))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Value, json};

    use super::*;

    fn game(name: &str, options: &Value) -> Box<dyn Scenario> {
        (lapwing_env::find(name).unwrap().configure)(options).unwrap()
    }

    fn key(scenario: &dyn Scenario, scene: u64) -> String {
        scenario.start(scene, 0).unwrap().key(0).unwrap()
    }

    #[test]
    fn training_never_draws_held_out_scenes() {
        for (name, options) in [
            ("frozen-lake", json!({})),
            // A small map, so that scenes repeat.
            ("frozen-lake", json!({ "size": 3 })),
            ("snake", json!({ "size": 4, "apples": 1 })),
        ] {
            let scenario = game(name, &options);
            let scenes = Scenes::of(&*scenario).unwrap();
            assert!(scenes.divided());
            let seats = scenes.evaluation(&*scenario, 1, 200).unwrap();
            let examined: HashSet<String> = seats
                .iter()
                .map(|seat| key(&*scenario, seat.scene))
                .collect();
            let mut redrawn = 0;
            for step in 0..1000 {
                let draw = |attempt| seeds::derive(1, "scene", &[step, 0, attempt]);
                let scene = scenes.training(&*scenario, draw).unwrap();
                assert!(
                    !examined.contains(&key(&*scenario, scene)),
                    "{name}, step {step}"
                );
                redrawn += usize::from(scene != draw(0));
            }
            // A fifth of the draws; their standard deviation is 13, but equal maps count together.
            assert!(
                (50..400).contains(&redrawn),
                "{redrawn} of 1000 {name} {options}"
            );
        }
    }

    /// Held-out scenes do not depend on the evaluation.
    #[test]
    fn more_episodes_and_other_views_change_no_scene() {
        let lake = game("frozen-lake", &json!({}));
        let full = game("frozen-lake", &json!({ "view": "full" }));
        let scenes = Scenes::of(&*lake).unwrap();
        let of = |scenario, seed, count| scenes.evaluation(scenario, seed, count).unwrap();
        assert_eq!(of(&*lake, 1, 3), of(&*lake, 1, 5)[..3]);
        assert_eq!(of(&*lake, 1, 30), of(&*full, 1, 30));
        assert_ne!(of(&*lake, 1, 3), of(&*lake, 2, 3));
    }

    #[test]
    fn a_game_with_one_scene_is_not_divided() {
        let lake = game("frozen-lake", &json!({ "map": ["SF", "HG"] }));
        let scenes = Scenes::of(&*lake).unwrap();
        assert!(!scenes.divided());
        assert_eq!(
            scenes.training(&*lake, |attempt| attempt as u64).unwrap(),
            0
        );
        assert_eq!(scenes.evaluation(&*lake, 1, 4).unwrap().len(), 4);
    }
}
