//! Rooms: walk through rooms with doors and keys and do a mission.
//!
//! After nine levels of BabyAI (MiniGrid 3.2) in the sentences of BabyAI-Text.
//! `docs/games/rooms.md` describes the rules, the scripted player and the departures from the source.

mod draw;
mod grid;
mod mission;
mod options;
mod plan;
mod text;

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::options::{Phrasing, View, presets};
use crate::rng::Stream;
use crate::{
    DeclaredOptions, Game, GameError, Kind, Outcome, Scenario, actions_for, check_actions, meant,
};
use grid::{Act, Grid};
use mission::Mission;
use options::{MissionGoal, RoomsOptions, RoomsTask};

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Walk through rooms with doors and keys and do a mission.",
    options: RoomsOptions::LIST,
    variants: presets! {
        GameVariant of RoomsOptions;
        /// Go to a thing in a room of 3x3 cells (GoToLocalS5N2), 20 steps.
        "rooms-goto-local": task = RoomsTask::GotoLocal;
        /// Go to a thing in four small rooms with doors (GoToObjMazeS4R2), 60 steps.
        "rooms-goto-maze": task = RoomsTask::GotoMaze;
        /// Pick up one of eight things, which may be described by its side (PickupLoc), 20 steps.
        "rooms-pickup-loc": task = RoomsTask::PickupLoc;
        /// Pick up one of five things, described by kind, colour or both (PickupDist), 20 steps.
        "rooms-pickup-dist": task = RoomsTask::PickupDist;
        /// Put one thing next to another (PutNextLocalS5N3), 20 steps.
        "rooms-put-next-local": task = RoomsTask::PutNextLocal;
        /// Fetch a key and open the door, among other things (UnlockLocalDist), 20 steps.
        "rooms-unlock-local": task = RoomsTask::UnlockLocal;
        /// Unlock a door and pick up the box behind it (UnlockPickup), 20 steps.
        "rooms-unlock-pickup": task = RoomsTask::UnlockPickup;
        /// The same with a ball in front of the door (BlockedUnlockPickup), 40 steps.
        "rooms-blocked-unlock-pickup": task = RoomsTask::BlockedUnlockPickup;
        /// Unlock a door to the key of another (UnlockToUnlock), 60 steps.
        "rooms-unlock-to-unlock": task = RoomsTask::UnlockToUnlock;
    },
    probes: presets! {
        SemanticProbe of RoomsOptions;
        /// The mission is what not to do.
        "avoid", Blatant: goal = MissionGoal::Avoid;
        /// The words left and right swap their meanings.
        "swapped", Plain: swapped = true;
        /// Observations without their first words, "You see".
        "symbols", Subtle: symbols = Phrasing::Other;
        /// Rules and missions in other words.
        "wording", Subtle: wording = Phrasing::Other;
    },
    configure: |options| Ok(Box::new(RoomsOptions::checked(options)?)),
};

const NAME: &str = "rooms";

static ACTIONS: LazyLock<[String; 6]> = LazyLock::new(|| {
    [
        "turn left",
        "turn right",
        "go forward",
        "pick up",
        "drop",
        "toggle",
    ]
    .map(str::to_owned)
});

/// The places of left and right in them.
const LEFT_RIGHT: [usize; 2] = [0, 1];

impl Scenario for RoomsOptions {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        let mut rules = String::from(self.wording.either(
            "You walk through rooms. You act on the cell one step before you: pick up a thing with empty hands, drop it on an empty cell, toggle a door. A locked door needs a key of its colour in your hand.",
            "You are in a house and deal with what is right in front of you: take it if you hold nothing, put down what you hold where nothing is, open doors by toggle. Locked ones want a key of the same colour.",
        ));
        if self.view == View::Full {
            rules += " The whole house is told.";
        }
        if self.swapped {
            rules += " left and right are swapped: turn left turns to the right, turn right to the left.";
        }
        rules += match (self.goal, self.wording) {
            (MissionGoal::Do, Phrasing::Usual) => " Do the mission in few steps.",
            (MissionGoal::Do, Phrasing::Other) => " Be quick about your mission.",
            (MissionGoal::Avoid, Phrasing::Usual) => " Doing what you must not do costs a point.",
            (MissionGoal::Avoid, Phrasing::Other) => " It costs a point to do what is forbidden.",
        };
        rules
    }

    fn actions(&self) -> &[String] {
        &*ACTIONS
    }

    fn start(&self, scene: u64, _: u64) -> Result<Box<dyn Game>, GameError> {
        let (grid, mission) = draw::draw(self.task, &mut Stream::new(scene, "rooms house"));
        Ok(Box::new(RoomsEpisode {
            options: self.clone(),
            mission: Arc::new(mission),
            grid,
            steps: 0,
            done: false,
        }))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        Some(match self.goal {
            MissionGoal::Do => (0.0, 1.0),
            MissionGoal::Avoid => (-1.0, 0.0),
        })
    }

    fn step_limit(&self) -> usize {
        self.step_limit.unwrap_or(match self.task {
            RoomsTask::GotoMaze | RoomsTask::UnlockToUnlock => 60,
            RoomsTask::BlockedUnlockPickup => 40,
            _ => 20,
        })
    }

    fn options(&self) -> Value {
        self.in_force(None)
    }
}

#[derive(Clone)]
struct RoomsEpisode {
    options: RoomsOptions,
    mission: Arc<Mission>,
    grid: Grid,
    steps: usize,
    done: bool,
}

impl RoomsEpisode {
    /// Returns the acts towards the mission, as indices into [`Act::ALL`]: all if there is no way.
    fn towards(&self) -> Vec<usize> {
        match plan::next(&self.grid, &self.mission) {
            Some(act) => vec![act as usize],
            None => (0..ACTIONS.len()).collect(),
        }
    }

    fn act(&self, action: usize) -> Act {
        Act::ALL[meant(action, self.options.swapped, LEFT_RIGHT)]
    }
}

impl Game for RoomsEpisode {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        let (options, grid) = (&self.options, &self.grid);
        let mission = self.mission.in_words(options.wording);
        let mission = match options.goal {
            MissionGoal::Do => format!("Your mission is to {mission}."),
            MissionGoal::Avoid => format!("You must not {mission}."),
        };
        let state = match options.view {
            View::Board => text::view(grid, options.symbols),
            View::Full => text::full(grid, &self.mission, options.symbols),
        };
        Ok(format!("{mission}\n{state}"))
    }

    fn key(&self, _: usize) -> Result<String, GameError> {
        Ok(text::key(&self.grid, &self.mission))
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        check_actions(NAME, actions, &[self.done], ACTIONS.len());
        if self.done {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        self.steps += 1;
        if let Some(action) = actions[0] {
            let before = self.grid.clone();
            self.grid.perform(self.act(action));
            self.done = self.mission.done(&before, &self.grid);
        }
        let limit = self.options.step_limit();
        let worth = 1.0 - 0.9 * self.steps.min(limit) as f64 / limit as f64;
        let reward = match (self.done, self.options.goal) {
            (false, _) => 0.0,
            (true, MissionGoal::Do) => worth,
            (true, MissionGoal::Avoid) => -worth,
        };
        let over = self.done;
        Ok(vec![Outcome { reward, over }])
    }

    fn succeeded(&self, _: usize) -> bool {
        self.done == (self.options.goal == MissionGoal::Do)
    }

    fn ending(&self, _: usize) -> Option<&'static str> {
        self.done.then_some(match self.options.goal {
            MissionGoal::Do => "did the mission",
            MissionGoal::Avoid => "did what was forbidden",
        })
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        Some(match self.options.goal {
            MissionGoal::Do => actions_for(self.towards(), self.options.swapped, LEFT_RIGHT),
            MissionGoal::Avoid => (0..ACTIONS.len())
                .filter(|&action| {
                    let mut after = self.grid.clone();
                    after.perform(self.act(action));
                    !self.mission.done(&self.grid, &after)
                })
                .collect(),
        })
    }

    fn habit(&self, _: usize) -> Option<Vec<usize>> {
        self.options.changed().then(|| self.towards())
    }

    fn fork(&self, _: u64) -> Option<Box<dyn Game>> {
        Some(Box::new(self.clone()))
    }
}

#[cfg(test)]
mod tests;
