//! Divides scenes into training and held-out scenes. The division follows from the scene alone, so it is the same for
//! every seed, run and number of episodes, and no run trains on another run's evaluation scenes.

use lapwing_env::Scenario;
use serde::{Deserialize, Serialize};

use crate::PlayError;
use crate::seeds;

/// One scene in this many is held out.
const KEPT: u64 = 5;
/// The number of scenes that show whether a game's scenes can be divided.
const PROBES: usize = 64;
/// The number of scenes that show whether a scene always starts the same.
const REPEATED: usize = 4;
/// The number of draws after which a scene of the wanted kind is considered missing.
const DRAWS: usize = 10_000;

/// One game to play.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Seat {
    /// the seed of the initial state
    pub scene: u64,
    /// the seed of chance events afterwards
    pub luck: u64,
    /// the seed of the players' random choices
    pub reply: u64,
}

impl Seat {
    /// Returns a game whose three seeds are this one.
    pub fn of(seed: u64) -> Seat {
        Seat {
            scene: seed,
            luck: seed,
            reply: seed,
        }
    }
}

/// The divided scenes of one game.
#[derive(Debug, Clone, Copy)]
pub struct Scenes {
    /// whether training and evaluation have separate scenes
    pub divided: bool,
    /// whether a scene starts the same each time, as its seed must determine it
    pub repeat: bool,
}

impl Scenes {
    /// Checks whether the game has scenes of both kinds. A game with a single scene, such as a given map, cannot hold
    /// one out: it is used for training and evaluation.
    ///
    /// # Errors
    /// If the game fails.
    pub fn of(scenario: &dyn Scenario) -> Result<Scenes, PlayError> {
        let mut kept = 0;
        for probe in 0..PROBES {
            kept += usize::from(is_kept(scenario, seeds::derive(0, "probe", &[probe]))?);
        }
        let mut repeat = true;
        for probe in 0..REPEATED {
            let scene = seeds::derive(0, "probe", &[probe]);
            repeat &= map(scenario, scene)? == map(scenario, scene)?;
        }
        Ok(Scenes {
            divided: (1..PROBES).contains(&kept),
            repeat,
        })
    }

    /// Returns a training scene: the first that `draw` gives for 0, 1, 2, ... and that is not held out.
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

    /// Returns the seats of a warm-up or a sample, named by `purpose`, on training scenes.
    ///
    /// # Errors
    /// If the game fails, or has no such scene.
    pub fn warmup(
        &self,
        scenario: &dyn Scenario,
        purpose: &str,
        seed: u64,
        episodes: usize,
    ) -> Result<Vec<Seat>, PlayError> {
        self.seats(scenario, (purpose, false), seed, episodes)
    }

    /// Returns the seats of an evaluation during training. They are the same for every run with this seed, and a smaller
    /// evaluation plays the first of them.
    ///
    /// # Errors
    /// If the game fails, or has no such scene.
    pub fn evaluation(
        &self,
        scenario: &dyn Scenario,
        seed: u64,
        episodes: usize,
    ) -> Result<Vec<Seat>, PlayError> {
        self.seats(scenario, ("evaluation", true), seed, episodes)
    }

    /// Returns the seats of a test. They are drawn independently of those of an evaluation, which selects the best
    /// weights, so the score of these weights is unbiased. Scenes of an evaluation recur by chance only. To exclude them
    /// would make a test harder: the likely scenes of a small game would be missing.
    ///
    /// # Errors
    /// If the game fails, or has no such scene.
    pub fn test(
        &self,
        scenario: &dyn Scenario,
        seed: u64,
        episodes: usize,
    ) -> Result<Vec<Seat>, PlayError> {
        self.seats(scenario, ("test", true), seed, episodes)
    }

    fn seats(
        &self,
        scenario: &dyn Scenario,
        (purpose, kept): (&str, bool),
        seed: u64,
        episodes: usize,
    ) -> Result<Vec<Seat>, PlayError> {
        let names = ["scene", "luck", "reply"].map(|name| format!("{purpose} {name}"));
        let seat = |i| {
            let draw = |attempt| seeds::derive(seed, &names[0], &[i, attempt]);
            Ok(Seat {
                scene: self.first(scenario, kept, draw)?,
                luck: seeds::derive(seed, &names[1], &[i]),
                reply: seeds::derive(seed, &names[2], &[i]),
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
        for scene in (0..DRAWS).map(draw) {
            if !self.divided || is_kept(scenario, scene)? == kept {
                return Ok(scene);
            }
        }
        Err(PlayError::NoScene {
            game: scenario.name().to_owned(),
            kept,
        })
    }
}

/// Returns whether a scene is held out, by a hash of its map.
fn is_kept(scenario: &dyn Scenario, scene: u64) -> Result<bool, PlayError> {
    let map = map(scenario, scene)?;
    Ok(seeds::derive(0, &map, &[]).is_multiple_of(KEPT))
}

/// Returns the smallest map of all agents, so that their order does not matter.
fn map(scenario: &dyn Scenario, scene: u64) -> Result<String, PlayError> {
    let game = scenario.start(scene, 0)?;
    let mut least = game.map(0)?;
    for agent in 1..scenario.agents() {
        least = least.min(game.map(agent)?);
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Value, json};

    use super::*;

    fn game(name: &str, options: &Value) -> Box<dyn Scenario> {
        (lapwing_env::find(name).unwrap().configure)(options).unwrap()
    }

    fn map(scenario: &dyn Scenario, scene: u64) -> String {
        super::map(scenario, scene).unwrap()
    }

    #[test]
    fn scenes_of_the_evaluation_are_never_trained_on() {
        for (name, options) in [
            ("frozen-lake", json!({})),
            // A map of few cells, so that maps repeat often.
            ("frozen-lake", json!({ "size": 3 })),
            ("snake", json!({ "size": 4, "apples": 1 })),
        ] {
            let scenario = game(name, &options);
            let scenes = Scenes::of(&*scenario).unwrap();
            assert!(scenes.divided);
            let seats = scenes.evaluation(&*scenario, 1, 200).unwrap();
            let examined: HashSet<String> = seats
                .iter()
                .map(|seat| map(&*scenario, seat.scene))
                .collect();
            let mut redrawn = 0;
            for step in 0..1000 {
                let draw = |attempt| seeds::derive(1, "scene", &[step, 0, attempt]);
                let scene = scenes.training(&*scenario, draw).unwrap();
                assert!(
                    !examined.contains(&map(&*scenario, scene)),
                    "{name}, step {step}"
                );
                redrawn += usize::from(scene != draw(0));
            }
            for seat in scenes.warmup(&*scenario, "warmup", 1, 200).unwrap() {
                assert!(!examined.contains(&map(&*scenario, seat.scene)), "{name}");
            }
            // A fifth of the draws. Their standard deviation is 13, but equal maps go together.
            assert!(
                (50..400).contains(&redrawn),
                "{redrawn} of 1000 {name} {options}"
            );
        }
    }

    /// The division does not depend on the evaluation.
    #[test]
    fn more_episodes_and_other_views_change_no_scene() {
        let lake = game("frozen-lake", &json!({}));
        let told = game("frozen-lake", &json!({ "view": "full" }));
        let scenes = Scenes::of(&*lake).unwrap();
        let of = |scenario, seed, count| scenes.evaluation(scenario, seed, count).unwrap();
        assert_eq!(of(&*lake, 1, 3), of(&*lake, 1, 5)[..3]);
        assert_eq!(of(&*lake, 1, 30), of(&*told, 1, 30));
        assert_ne!(of(&*lake, 1, 3), of(&*lake, 2, 3));
    }

    /// A run that mixes in a probe never trains on a map that it is evaluated on.
    #[test]
    fn a_probe_holds_out_the_maps_of_its_game() {
        for (name, options) in [
            ("frozen-lake", json!({ "size": 3 })),
            ("snake", json!({ "size": 3, "apples": 1 })),
            ("sokoban", json!({ "size": 5 })),
            ("2048", json!({})),
        ] {
            let usual = game(name, &options);
            let seats = Scenes::of(&*usual).unwrap().evaluation(&*usual, 1, 200);
            let seats = seats.unwrap();
            let examined: HashSet<String> =
                seats.iter().map(|seat| map(&*usual, seat.scene)).collect();
            for probe in lapwing_env::find(name).unwrap().probes {
                let mut options = options.clone();
                let changes = (probe.options)().as_object().unwrap().clone();
                options.as_object_mut().unwrap().extend(changes);
                let probed = game(name, &options);
                let scenes = Scenes::of(&*probed).unwrap();
                for step in 0..200 {
                    let draw = |attempt| seeds::derive(1, "scene", &[step, 0, attempt]);
                    let scene = scenes.training(&*probed, draw).unwrap();
                    let trained = map(&*probed, scene);
                    assert!(
                        !examined.contains(&trained),
                        "{name} {}: {trained}",
                        probe.name
                    );
                }
            }
        }
    }

    /// Tests have their own scenes, luck and replies of the same distribution, in which likely 4x4 lakes recur.
    #[test]
    fn tests_are_independent_of_evaluations() {
        let lake = game("frozen-lake", &json!({}));
        let scenes = Scenes::of(&*lake).unwrap();
        let test = scenes.test(&*lake, 1, 200).unwrap();
        let evaluation = scenes.evaluation(&*lake, 1, 200).unwrap();
        for of in [
            |seat: &Seat| seat.scene,
            |seat: &Seat| seat.luck,
            |seat: &Seat| seat.reply,
        ] {
            let numbers: HashSet<u64> = evaluation.iter().map(of).collect();
            assert!(test.iter().all(|seat| !numbers.contains(&of(seat))));
        }
        let is_held_out = |seat: &Seat| is_kept(&*lake, seat.scene).unwrap();
        assert!(test.iter().all(is_held_out));
        let keys = |seats: &[Seat]| -> Vec<String> {
            seats.iter().map(|seat| map(&*lake, seat.scene)).collect()
        };
        let (tested, evaluated) = (keys(&test), keys(&evaluation));
        let recurring = tested.iter().filter(|key| evaluated.contains(key)).count();
        assert!((20..160).contains(&recurring), "{recurring} of 200");
    }

    #[test]
    fn a_game_with_one_scene_is_not_divided() {
        let lake = game("frozen-lake", &json!({ "map": ["SF", "HG"] }));
        let scenes = Scenes::of(&*lake).unwrap();
        assert!(!scenes.divided);
        assert_eq!(
            scenes.training(&*lake, |attempt| attempt as u64).unwrap(),
            0
        );
        assert_eq!(scenes.evaluation(&*lake, 1, 4).unwrap().len(), 4);
    }
}
