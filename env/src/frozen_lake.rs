//! Frozen Lake: walk over the ice to the goal without falling into a hole.
//!
//! **Description.** A grid of ice and holes with a start and a goal, after Gymnasium's `FrozenLake-v1`.
//!
//! **Actions.** `left`, `down`, `right`, `up`: one cell that way; at the edge the player stays where it is. On slippery
//! ice the player goes the intended way or to either side of it, each with a chance of 1/3. An action that could not be
//! read leaves the player where it is; it does not slip either.
//!
//! **Observation.** `view = "board"`: the rows from top to bottom, one character a cell with spaces between: `P` the
//! player, `O` a hole, `G` the goal, `_` anything else, the start too. `view = "full"` puts coordinates and a key above
//! the board: column and row from (0, 0) at the bottom left. The key of a state is the map and the player's place, in
//! either view; how many steps were taken is no part of it.
//!
//! **Start.** At `S`. The map is the given one, or is drawn from the scene: start at the top left, goal at the bottom
//! right, every other cell frozen with probability `frozen`, drawn again until the goal can be reached. A map that a
//! thousand draws have not found gets a shortest path cleared in the last of them, so that starting always ends.
//!
//! **Rewards.** 1 on reaching the goal, otherwise 0. Success is standing on the goal.
//!
//! **End.** In a hole or at the goal. The referee's step limit is `step_limit` unless it is told otherwise.
//!
//! **Options.** `size` = 4, or `width` and `height` (each as `size` unless given); `largest`: if given, each scene
//! draws its width and its height, each evenly from `size` to `largest`; `frozen` = 0.8; `map` = a list of rows of
//! `S`, `F`, `H`, `G`, which stands for all of these; `slippery` = false; `step_limit` = 20; `view` = "board". An
//! option that another leaves no use for is refused.
//!
//! **Scripted player.** Firm ice: any step along a shortest path. Slippery ice: whatever gives the best chance to reach
//! the goal in the steps that remain of `step_limit` (value iteration over exactly those); when there is no chance left,
//! what would be best at the start. Both are optimal.
//!
//! **Optimum.** Known: the best player's chance to reach the goal in the steps that remain of `step_limit`.
//!
//! **Departures from Gymnasium.** Every scene draws its own map, where Gymnasium keeps one map for an environment. The
//! step limit is the referee's. The clearing of a path after a thousand draws, and the invalid action, are ours.

mod map;
mod options;
mod plan;

use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::Value;

use crate::options::{OptionsError, View};
use crate::rng::Stream;
use crate::{Game, GameError, Kind, Outcome, Scenario, check_actions};
use map::{Cell, Map};
use options::Options;
use plan::Plan;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Walk over the ice to the goal without falling into a hole, on firm or slippery ice.",
    options: options::OPTIONS,
    variants: &[],
    probes: &[],
    configure: |options| Ok(Box::new(FrozenLake::new(options)?)),
};

const NAME: &str = "frozen-lake";

/// In Gymnasium's order: the neighbours of an action in this circle are the ways it can slip.
static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["left", "down", "right", "up"].map(str::to_owned));

#[derive(Debug)]
struct FrozenLake {
    options: Options,
    /// The lake of all scenes, if the options say its map.
    given: Option<Arc<Lake>>,
}

impl FrozenLake {
    fn new(given: &Value) -> Result<FrozenLake, OptionsError> {
        let (options, map) = Options::checked(given)?;
        let lake = |map| Arc::new(Lake::new(map, options.slippery, options.step_limit));
        Ok(FrozenLake {
            given: map.map(lake),
            options,
        })
    }

    fn lake(&self, scene: u64) -> Arc<Lake> {
        if let Some(lake) = &self.given {
            return lake.clone();
        }
        let options = &self.options;
        // A stream of its own, so that lakes of a drawn size that comes out as 4 are those of size 4.
        let mut sides = Stream::new(scene, "frozen-lake sides");
        let [width, height] = options
            .sides()
            .map(|side| side.start() + sides.below(side.end() - side.start() + 1));
        let mut cells = Stream::new(scene, "frozen-lake map");
        let map = Map::draw(width, height, options.frozen(), &mut cells);
        Arc::new(Lake::new(map, options.slippery, options.step_limit))
    }
}

impl Scenario for FrozenLake {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        let mut rules = String::from("You walk on a frozen lake.");
        if self.options.view == View::Board {
            rules += " P is you, _ is ice, O is a hole, G is the goal.";
        }
        rules +=
            " Reach the goal. A hole ends the game. Each move goes one cell; the edge stops you.";
        if self.options.slippery {
            rules +=
                " The ice is slippery: two moves in three slip to a side of where you want to go.";
        }
        rules
    }

    fn actions(&self) -> &[String] {
        &*ACTIONS
    }

    fn start(&self, scene: u64, luck: u64) -> Result<Box<dyn Game>, GameError> {
        let lake = self.lake(scene);
        let player = lake.map.start();
        Ok(Box::new(Walk {
            lake,
            player,
            steps: 0,
            view: self.options.view,
            luck: Stream::new(luck, "frozen-lake slips"),
        }))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        Some((0.0, 1.0))
    }

    fn step_limit(&self) -> usize {
        self.options.step_limit
    }

    fn options(&self) -> Value {
        crate::options::in_force(&self.options)
    }
}

/// What the episodes of a scene have in common.
#[derive(Debug)]
struct Lake {
    map: Map,
    slippery: bool,
    step_limit: usize,
    /// Made when first asked for: most episodes are played without.
    plan: OnceLock<Plan>,
}

impl Lake {
    fn new(map: Map, slippery: bool, step_limit: usize) -> Lake {
        Lake {
            map,
            slippery,
            step_limit,
            plan: OnceLock::new(),
        }
    }

    fn plan(&self) -> &Plan {
        self.plan.get_or_init(|| {
            if self.slippery {
                Plan::slippery(&self.map, self.step_limit)
            } else {
                Plan::firm(&self.map)
            }
        })
    }
}

/// An episode.
struct Walk {
    lake: Arc<Lake>,
    player: usize,
    steps: usize,
    view: View,
    luck: Stream,
}

impl Walk {
    fn over(&self) -> bool {
        matches!(self.lake.map.cell(self.player), Cell::Hole | Cell::Goal)
    }

    fn steps_left(&self) -> usize {
        self.lake.step_limit.saturating_sub(self.steps)
    }
}

impl Game for Walk {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        Ok(match self.view {
            View::Board => self.lake.map.board(self.player),
            View::Full => self.lake.map.told(self.player),
        })
    }

    fn key(&self, _: usize) -> Result<String, GameError> {
        Ok(self.lake.map.in_short(self.player))
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        check_actions(NAME, actions, &[self.over()], ACTIONS.len());
        if self.over() {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        self.steps += 1;
        if let Some(action) = actions[0] {
            let way = if self.lake.slippery {
                map::slips(action)[self.luck.below(3)]
            } else {
                action
            };
            self.player = self.lake.map.neighbour(self.player, way);
        }
        Ok(vec![Outcome {
            reward: if self.succeeded(0) { 1.0 } else { 0.0 },
            over: self.over(),
        }])
    }

    fn succeeded(&self, _: usize) -> bool {
        self.lake.map.cell(self.player) == Cell::Goal
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        let (lake, left) = (&self.lake, self.steps_left());
        Some(lake.plan().best_actions(&lake.map, self.player, left))
    }

    fn optimum(&self, _: usize) -> Option<f64> {
        // Who stands at the goal has had its reward.
        Some(if self.over() {
            0.0
        } else {
            self.lake.plan().chance(self.player, self.steps_left())
        })
    }
}

#[cfg(test)]
mod tests;
