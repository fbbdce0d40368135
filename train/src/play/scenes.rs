//! Which scenes are trained on, and which are kept for the evaluation.

use std::collections::HashSet;

use lapwing_env::Scenario;

use crate::Error;
use crate::play::Seat;
use crate::run::seeds;

/// The scenes of one game, divided.
#[derive(Debug)]
pub struct Scenes {
    held_out: HashSet<String>,
}

impl Scenes {
    /// Divides the scenes of this game.
    ///
    /// # Errors
    /// If the game fails.
    pub fn new(scenario: &dyn Scenario, seats: &[Seat]) -> Result<Scenes, Error> {
        let first = |seat: &Seat| Ok(scenario.start(seat.scene, seat.luck)?.observe(0)?);
        let held_out = seats.iter().map(first).collect::<Result<_, Error>>()?;
        Ok(Scenes { held_out })
    }

    /// The scene that a group plays, none of the evaluation's.
    ///
    /// # Errors
    /// If the game fails.
    pub fn training(
        &self,
        scenario: &dyn Scenario,
        seed: u64,
        step: usize,
        group: usize,
    ) -> Result<u64, Error> {
        const ATTEMPTS: usize = 100;
        for attempt in 0..ATTEMPTS {
            let scene = seeds::derive(seed, "scene", &[step, group, attempt]);
            if !self
                .held_out
                .contains(&scenario.start(scene, 0)?.observe(0)?)
            {
                return Ok(scene);
            }
        }
        Ok(seeds::derive(seed, "scene", &[step, group, 0]))
    }
}

/// The seats of an evaluation: the same for every run with this seed.
pub fn evaluation(seed: u64, episodes: usize) -> Vec<Seat> {
    let seat = |i| Seat {
        scene: seeds::derive(seed, "evaluation scene", &[i]),
        luck: seeds::derive(seed, "evaluation luck", &[i]),
        reply: seeds::derive(seed, "evaluation reply", &[i]),
    };
    (0..episodes).map(seat).collect()
}
