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
//! the board: column and row from (0, 0) at the bottom left.
//!
//! **Start.** At `S`. The map is the given one, or is drawn from the scene: start at the top left, goal at the bottom
//! right, every other cell frozen with probability `frozen`, drawn again until the goal can be reached. A map that a
//! thousand draws have not found gets a shortest path cleared in the last of them, so that starting always ends.
//!
//! **Rewards.** 1 on reaching the goal, otherwise 0. Success is standing on the goal.
//!
//! **End.** In a hole or at the goal. The referee's step limit is `step_limit` unless it is told otherwise.
//!
//! **Options.** `size` = 4, or `width` and `height` (each as `size` unless given); `frozen` = 0.8; `slippery` = false;
//! `map` = a list of rows of `S`, `F`, `H`, `G`, which also fixes the size, so that `size`, `width`, `height` and
//! `frozen` are not used; `step_limit` = 20; `view` = "board".
//!
//! **Scripted player.** Firm ice: any step along a shortest path. Slippery ice: whatever gives the best chance to reach
//! the goal in the steps that remain of `step_limit` (value iteration over exactly those); when there is no chance left,
//! what would be best at the start. Both are optimal.
//!
//! **Departures from Gymnasium.** Every scene draws its own map, where Gymnasium keeps one map for an environment. The
//! step limit is the referee's. The clearing of a path after a thousand draws, and the invalid action, are ours.

mod map;
mod plan;

use std::sync::{Arc, LazyLock, OnceLock};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::options::{self, OptionsError, View, refused};
use crate::rng::Stream;
use crate::{Game, GameError, Kind, Outcome, Scenario, check_actions};
use map::{Cell, Map};
use plan::Plan;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Walk over the ice to the goal without falling into a hole, on firm or slippery ice.",
    options: options::names::<Options>,
    configure: |options| Ok(Box::new(FrozenLake::new(options)?)),
};

const NAME: &str = "frozen-lake";

/// In Gymnasium's order: the neighbours of an action in this circle are the ways it can slip.
static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["left", "down", "right", "up"].map(str::to_owned));

/// The longest side; a board is read cell by cell, so larger ones fit no prompt.
const LONGEST_SIDE: usize = 64;

/// The highest step limit, so that planning every step of it on the largest map still fits in memory.
const LONGEST_EPISODE: usize = 1000;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    size: Option<usize>,
    width: Option<usize>,
    height: Option<usize>,
    frozen: Option<f64>,
    slippery: bool,
    map: Option<Vec<String>>,
    step_limit: usize,
    view: View,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            size: None,
            width: None,
            height: None,
            frozen: None,
            slippery: false,
            map: None,
            step_limit: 20,
            view: View::Board,
        }
    }
}

/// Where the maps come from.
#[derive(Debug)]
enum Source {
    Given(Arc<Lake>),
    Drawn {
        width: usize,
        height: usize,
        frozen: f64,
    },
}

#[derive(Debug)]
struct FrozenLake {
    source: Source,
    slippery: bool,
    step_limit: usize,
    view: View,
}

impl FrozenLake {
    fn new(given: &Value) -> Result<FrozenLake, OptionsError> {
        let options: Options = options::read(NAME, given)?;
        let (slippery, step_limit) = (options.slippery, options.step_limit);
        if !(1..=LONGEST_EPISODE).contains(&step_limit) {
            return Err(refused(
                NAME,
                "step_limit",
                step_limit,
                &format!("from 1 to {LONGEST_EPISODE}"),
            ));
        }
        let source = match &options.map {
            None => drawn(&options)?,
            Some(rows) => {
                let problem = |problem| OptionsError::Value {
                    game: NAME.to_owned(),
                    option: "map".to_owned(),
                    problem,
                };
                let map = Map::parse(rows, LONGEST_SIDE).map_err(problem)?;
                Source::Given(Arc::new(Lake::new(map, slippery, step_limit)))
            }
        };
        Ok(FrozenLake {
            source,
            slippery,
            step_limit,
            view: options.view,
        })
    }

    fn lake(&self, scene: u64) -> Arc<Lake> {
        match &self.source {
            Source::Given(lake) => lake.clone(),
            Source::Drawn {
                width,
                height,
                frozen,
            } => {
                let map = Map::draw(
                    *width,
                    *height,
                    *frozen,
                    &mut Stream::new(scene, "frozen-lake map"),
                );
                Arc::new(Lake::new(map, self.slippery, self.step_limit))
            }
        }
    }
}

fn drawn(options: &Options) -> Result<Source, OptionsError> {
    let sides = [
        ("size", options.size),
        ("width", options.width),
        ("height", options.height),
    ];
    for (name, side) in sides {
        if let Some(side) = side
            && !(2..=LONGEST_SIDE).contains(&side)
        {
            return Err(refused(
                NAME,
                name,
                side,
                &format!("from 2 to {LONGEST_SIDE}"),
            ));
        }
    }
    let size = options.size.unwrap_or(4);
    let frozen = options.frozen.unwrap_or(0.8);
    if !(frozen > 0.0 && frozen <= 1.0) {
        return Err(refused(NAME, "frozen", frozen, "more than 0 and at most 1"));
    }
    Ok(Source::Drawn {
        width: options.width.unwrap_or(size),
        height: options.height.unwrap_or(size),
        frozen,
    })
}

impl Scenario for FrozenLake {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        let mut rules = String::from("You walk on a frozen lake.");
        if self.view == View::Board {
            rules += " P is you, _ is ice, O is a hole, G is the goal.";
        }
        rules +=
            " Reach the goal. A hole ends the game. Each move goes one cell; the edge stops you.";
        if self.slippery {
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
            view: self.view,
            luck: Stream::new(luck, "frozen-lake slips"),
        }))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        Some((0.0, 1.0))
    }

    fn step_limit(&self) -> usize {
        self.step_limit
    }

    fn options(&self) -> Value {
        let mut options = Options {
            slippery: self.slippery,
            step_limit: self.step_limit,
            view: self.view,
            ..Options::default()
        };
        match &self.source {
            Source::Given(lake) => options.map = Some(lake.map.rows()),
            Source::Drawn {
                width,
                height,
                frozen,
            } => {
                options.frozen = Some(*frozen);
                if width == height {
                    options.size = Some(*width);
                } else {
                    (options.width, options.height) = (Some(*width), Some(*height));
                }
            }
        }
        options::in_force(&options)
    }
}

/// What the episodes of a scene have in common.
#[derive(Debug)]
struct Lake {
    map: Map,
    slippery: bool,
    step_limit: usize,
    /// Made when first asked for: only scripted players ask.
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
}

impl Game for Walk {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        Ok(match self.view {
            View::Board => self.lake.map.board(self.player),
            View::Full => self.lake.map.told(self.player),
        })
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
        let left = self.lake.step_limit.saturating_sub(self.steps);
        let lake = &self.lake;
        Some(lake.plan().best_actions(&lake.map, self.player, left))
    }
}

#[cfg(test)]
mod tests;
