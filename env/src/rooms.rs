//! Rooms: walk through rooms with doors and keys and do what the mission says.
//!
//! **Description.** A grid of rooms with walls, doors, keys, balls and boxes in six colours, and a mission in plain
//! words, after nine levels of BabyAI (MiniGrid 3.2), told as BabyAI-Text tells them.
//!
//! **Actions.** `turn left`, `turn right`, `go forward`, `pick up`, `drop`, `toggle`. The agent looks one way and acts on
//! the cell before it: it goes there if that is empty or an open door, picks up the thing there with empty hands, drops
//! what it carries if the cell is empty, and toggles a door: open and closed, or locked to open with a key of its colour
//! in hand. A toggled box is opened, and gone. What cannot be done does nothing, and so does an action that could not be
//! read; the step counts.
//!
//! **Observation.** First the mission. `view = "board"`: what is carried, and of the 7x7 cells before the agent those
//! that light reaches (MiniGrid's rule; walls and doors that are not open stop it): the wall ahead and to both sides, if
//! nothing stands before it, and things and doors with the steps to them. `symbols = "other"` leaves out "You see", as
//! BALROG does. `view = "full"` tells the whole house, which things are meant, and a picture (with signs by `symbols`). The key of a state is the
//! mission, the agent, what it carries, all things and doors and which are meant, whether seen or not; how many steps
//! were taken is no part of it, though the reward depends on it.
//!
//! **Start.** The scene draws rooms, things and mission by the rules of the level, again until each thing can be come to.
//! Luck has no part in the game.
//!
//! **Rewards.** 1 - 0.9 * steps / `step_limit` when the mission is done, otherwise 0. With `goal = "avoid"` the mission
//! is what not to do: that costs as much, and success is that it is never done.
//!
//! **End.** When the mission is done. The referee's step limit is `step_limit` unless it is told otherwise.
//!
//! **Options.** `task` = "goto-local", or one of the others that variants are named for; `goal` = "do"; `swapped` =
//! false: `turn left` turns right; `wording` and `symbols` = "usual"; `step_limit`: 20, for goto-maze and
//! unlock-to-unlock 60, for blocked-unlock-pickup 40; `view` = "board".
//!
//! **Scripted player.** Sees the whole house and plans by needs: go to, fetch, put away, unlock, each by the cheapest way
//! through what stands in it. Not optimal where more than one thing is to be done. To avoid a mission it turns on the
//! spot, or does nothing of use. The optimum is not known.
//!
//! **Departures from BabyAI.** An open door is "an open door" (BabyAI-Text says "a open"). What is carried or gone is
//! nowhere: only in MiniGrid does its old place still count for going there. All levels but blocked-unlock-pickup are
//! drawn again until each thing can be reached without moving another, with doors open. Rewards go by `step_limit`.

mod draw;
mod grid;
mod mission;
mod options;
mod plan;
mod text;

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::options::{Put, View};
use crate::rng::Stream;
use crate::{Game, GameError, Kind, Outcome, Probe, Scenario, Subtlety, Variant, check_actions};
use grid::{Action, Grid};
use mission::Mission;
use options::{Goal, Options};

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Walk through rooms with doors and keys and do what the mission says.",
    options: options::OPTIONS,
    variants: &[
        Variant {
            name: "rooms-goto-local",
            summary: "Go to a thing in a room of 3x3 cells (GoToLocalS5N2), 20 steps.",
            options: r#"{"task": "goto-local"}"#,
        },
        Variant {
            name: "rooms-goto-maze",
            summary: "Go to a thing in four small rooms with doors (GoToObjMazeS4R2), 60 steps.",
            options: r#"{"task": "goto-maze"}"#,
        },
        Variant {
            name: "rooms-pickup-loc",
            summary: "Pick up a thing that may be told by its side, among eight (PickupLoc), 20 steps.",
            options: r#"{"task": "pickup-loc"}"#,
        },
        Variant {
            name: "rooms-pickup-dist",
            summary: "Pick up a thing told by kind, colour or both, among five (PickupDist), 20 steps.",
            options: r#"{"task": "pickup-dist"}"#,
        },
        Variant {
            name: "rooms-put-next-local",
            summary: "Put one thing next to another (PutNextLocalS5N3), 20 steps.",
            options: r#"{"task": "put-next-local"}"#,
        },
        Variant {
            name: "rooms-unlock-local",
            summary: "Fetch a key and open the door, among other things (UnlockLocalDist), 20 steps.",
            options: r#"{"task": "unlock-local"}"#,
        },
        Variant {
            name: "rooms-unlock-pickup",
            summary: "Unlock a door and pick up the box behind it (UnlockPickup), 20 steps.",
            options: r#"{"task": "unlock-pickup"}"#,
        },
        Variant {
            name: "rooms-blocked-unlock-pickup",
            summary: "The same with a ball before the door (BlockedUnlockPickup), 40 steps.",
            options: r#"{"task": "blocked-unlock-pickup"}"#,
        },
        Variant {
            name: "rooms-unlock-to-unlock",
            summary: "Unlock a door to the key of another (UnlockToUnlock), 60 steps.",
            options: r#"{"task": "unlock-to-unlock"}"#,
        },
    ],
    probes: &[
        Probe {
            name: "avoid",
            summary: "The mission is what not to do.",
            subtlety: Subtlety::Blatant,
            options: r#"{"goal": "avoid"}"#,
        },
        Probe {
            name: "swapped",
            summary: "The words left and right have changed their meaning.",
            subtlety: Subtlety::Plain,
            options: r#"{"swapped": true}"#,
        },
        Probe {
            name: "symbols",
            summary: "What is seen is told without its beginning.",
            subtlety: Subtlety::Subtle,
            options: r#"{"symbols": "other"}"#,
        },
        Probe {
            name: "wording",
            summary: "Rules and missions in other words.",
            subtlety: Subtlety::Subtle,
            options: r#"{"wording": "other"}"#,
        },
    ],
    configure: |options| {
        Ok(Box::new(Rooms {
            options: Options::checked(options)?,
        }))
    },
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

#[derive(Debug)]
struct Rooms {
    options: Options,
}

impl Scenario for Rooms {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        let options = &self.options;
        let mut rules = String::from(match options.wording {
            Put::Usual => {
                "You walk through rooms. You act on the cell one step before you: pick up a thing with empty hands, drop it on an empty cell, toggle a door. A locked door needs a key of its colour in your hand."
            }
            Put::Other => {
                "You are in a house and deal with what is right in front of you: take it if you hold nothing, put down what you hold where nothing is, open doors by toggle. Locked ones want a key of the same colour."
            }
        });
        if options.view == View::Full {
            rules += " The whole house is told.";
        }
        if options.swapped {
            rules += " left and right are swapped: turn left turns to the right, turn right to the left.";
        }
        rules += match (options.goal, options.wording) {
            (Goal::Do, Put::Usual) => " Do the mission in few steps.",
            (Goal::Do, Put::Other) => " Be quick about your mission.",
            (Goal::Avoid, Put::Usual) => " Doing what you must not do costs a point.",
            (Goal::Avoid, Put::Other) => " It costs a point to do what is forbidden.",
        };
        rules
    }

    fn actions(&self) -> &[String] {
        &*ACTIONS
    }

    fn start(&self, scene: u64, _: u64) -> Result<Box<dyn Game>, GameError> {
        let (grid, mission) = draw::draw(self.options.task, &mut Stream::new(scene, "rooms house"));
        Ok(Box::new(Episode {
            options: self.options.clone(),
            mission: Arc::new(mission),
            grid,
            steps: 0,
            done: false,
        }))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        Some(match self.options.goal {
            Goal::Do => (0.0, 1.0),
            Goal::Avoid => (-1.0, 0.0),
        })
    }

    fn step_limit(&self) -> usize {
        self.options.step_limit()
    }

    fn options(&self) -> Value {
        crate::options::in_force(&self.options)
    }
}

#[derive(Clone)]
struct Episode {
    options: Options,
    mission: Arc<Mission>,
    grid: Grid,
    steps: usize,
    done: bool,
}

impl Episode {
    /// What does the mission, as places in [`Action::ALL`]; all of them if there is no way.
    fn towards(&self) -> Vec<usize> {
        plan::next(&self.grid, &self.mission).map_or_else(
            || (0..ACTIONS.len()).collect(),
            |action| vec![action as usize],
        )
    }
}

impl Game for Episode {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        let (options, grid) = (&self.options, &self.grid);
        let mission = self.mission.told(options.wording == Put::Other);
        let mission = match options.goal {
            Goal::Do => format!("Your mission is to {mission}."),
            Goal::Avoid => format!("You must not {mission}."),
        };
        let seen = match options.view {
            View::Board => text::seen(grid, options.symbols == Put::Other),
            View::Full => text::whole(grid, &self.mission, options.symbols),
        };
        Ok(format!("{mission}\n{seen}"))
    }

    fn key(&self, _: usize) -> Result<String, GameError> {
        Ok(text::in_short(&self.grid, &self.mission))
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        check_actions(NAME, actions, &[self.done], ACTIONS.len());
        if self.done {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        self.steps += 1;
        if let Some(action) = actions[0] {
            let before = self.grid.clone();
            self.grid.act(Action::ALL[self.options.meaning(action)]);
            self.done = self.mission.done(&before, &self.grid);
        }
        let limit = self.options.step_limit();
        let worth = 1.0 - 0.9 * self.steps.min(limit) as f64 / limit as f64;
        let reward = match (self.done, self.options.goal) {
            (false, _) => 0.0,
            (true, Goal::Do) => worth,
            (true, Goal::Avoid) => -worth,
        };
        Ok(vec![Outcome {
            reward,
            over: self.done,
        }])
    }

    fn succeeded(&self, _: usize) -> bool {
        self.done == (self.options.goal == Goal::Do)
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        Some(match self.options.goal {
            Goal::Do => {
                let mut actions = self.towards();
                for action in &mut actions {
                    *action = self.options.meaning(*action);
                }
                actions.sort_unstable();
                actions
            }
            // Whatever does not do it: dropping nothing, say.
            Goal::Avoid => (0..ACTIONS.len())
                .filter(|&action| {
                    let mut after = self.grid.clone();
                    after.act(Action::ALL[self.options.meaning(action)]);
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
