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
//! either view; how many steps were taken is no part of it, but for `exact`, where it stands above the board and in the key.
//!
//! **Start.** At `S`. The map is the given one, or is drawn from the scene: start at the top left, goal at the bottom
//! right, every other cell frozen with probability `frozen`, drawn again until the goal can be reached. A map that a
//! thousand draws have not found gets a shortest path cleared in the last of them, so that starting always ends.
//!
//! **Rewards.** 1 on reaching the goal (or a hole, as `target` says; at step `exact` only, if given), -1 for each step that
//! ends on red ice, otherwise 0. Success is to have had the 1 and not been on red ice.
//!
//! **End.** In a hole or at the goal. The referee's step limit is `step_limit` unless it is told otherwise.
//!
//! **Options.** `size` = 4, or `width` and `height` (each as `size` unless given); `largest`: if given, each scene
//! draws its width and its height, each evenly from `size` to `largest`; `frozen` = 0.8; `map` = a list of rows of
//! `S`, `F`, `H`, `G`, which stands for all of these; `slippery` = false; `step_limit` = 20; `view` = "board". An
//! option that another leaves no use for is refused. For probes, and in the options in force only where they are not so:
//! `target` = "goal" (or "holes"); `exact`, a step; `red` = 0 cells of red ice, drawn from the scene such that a way without
//! remains; `swapped` = false (left and right swap their meaning); `symbols` = "usual"; `wording` = "usual" (of the rules).
//!
//! **Scripted player.** Firm ice: any step along a shortest path. Slippery ice: whatever gives the best chance to reach
//! the goal in the steps that remain of `step_limit` (value iteration over exactly those); when there is no chance left,
//! what would be best at the start. With red ice or an exact step, whatever brings the highest return in the steps that
//! remain. All are optimal.
//!
//! **Optimum.** Known: what the best player can expect in the steps that remain of `step_limit`, if its every reply is an
//! action (to stand still by one that is not could bring more with red ice or an exact step).
//!
//! **Habit.** Where the goal is not all that is told of, or words are swapped: the scripted player's choice by the usual
//! instructions on the same lake.
//!
//! **Departures from Gymnasium.** Every scene draws its own map, where Gymnasium keeps one map for an environment. The
//! step limit is the referee's. The clearing of a path after a thousand draws, and the invalid action, are ours.

mod map;
mod named;
mod options;
mod plan;
mod text;

use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::Value;

use crate::options::OptionsError;
use crate::rng::Stream;
use crate::{Game, GameError, Kind, Outcome, Planes, Scenario, check_actions};
use map::{Cell, Map};
use options::{Options, Task};
use plan::Plan;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Walk over the ice to the goal without falling into a hole, on firm or slippery ice.",
    options: options::OPTIONS,
    variants: named::VARIANTS,
    probes: named::PROBES,
    configure: |options| Ok(Box::new(FrozenLake::new(options)?)),
};

const NAME: &str = "frozen-lake";

/// In Gymnasium's order: the neighbours of an action in this circle are the ways it can slip.
static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["left", "down", "right", "up"].map(str::to_owned));

#[derive(Debug)]
struct FrozenLake {
    options: Arc<Options>,
    /// The map of all scenes, if the options say it.
    map: Option<Map>,
    /// Their lake, if nothing of it is left to the scene.
    given: Option<Arc<Lake>>,
}

impl FrozenLake {
    fn new(given: &Value) -> Result<FrozenLake, OptionsError> {
        let (options, map) = Options::checked(given)?;
        let options = Arc::new(options);
        let whole = map.clone().filter(|_| options.red == 0);
        Ok(FrozenLake {
            given: whole.map(|map| Arc::new(Lake::new(map, options.clone()))),
            map,
            options,
        })
    }

    fn lake(&self, scene: u64) -> Arc<Lake> {
        if let Some(lake) = &self.given {
            return lake.clone();
        }
        let mut map = self.map.clone().unwrap_or_else(|| self.draw(scene));
        if self.options.red > 0 {
            // A stream of its own, so that the lake below is that of the usual game.
            let mut stream = Stream::new(scene, "frozen-lake red");
            map.redden(self.options.red, &mut stream);
        }
        Arc::new(Lake::new(map, self.options.clone()))
    }

    fn draw(&self, scene: u64) -> Map {
        let options = &self.options;
        // A stream of its own, so that lakes of a drawn size that comes out as 4 are those of size 4.
        let mut sides = Stream::new(scene, "frozen-lake sides");
        let [width, height] = options
            .sides()
            .map(|side| side.start() + sides.below(side.end() - side.start() + 1));
        let mut cells = Stream::new(scene, "frozen-lake map");
        Map::draw(width, height, options.frozen(), &mut cells)
    }
}

impl Scenario for FrozenLake {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        text::rules(&self.options)
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
            won: false,
            paid: false,
            luck: Stream::new(luck, SLIPS),
        }))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        Some((if self.options.red > 0 { -1.0 } else { 0.0 }, 1.0))
    }

    fn step_limit(&self) -> usize {
        self.options.step_limit
    }

    fn options(&self) -> Value {
        crate::options::in_force(&*self.options)
    }
}

/// What the episodes of a scene have in common.
#[derive(Debug)]
struct Lake {
    map: Map,
    options: Arc<Options>,
    task: Task,
    /// Made when first asked for: most episodes are played without.
    plan: OnceLock<Plan>,
    /// What would be best by the usual instructions.
    habit: OnceLock<Plan>,
}

impl Lake {
    fn new(map: Map, options: Arc<Options>) -> Lake {
        Lake {
            map,
            task: options.task(),
            options,
            plan: OnceLock::new(),
            habit: OnceLock::new(),
        }
    }

    fn plan(&self) -> &Plan {
        self.plan.get_or_init(|| Plan::new(&self.map, &self.task))
    }
}

/// The stream of the slips.
const SLIPS: &str = "frozen-lake slips";

/// An episode.
#[derive(Clone)]
struct Walk {
    lake: Arc<Lake>,
    player: usize,
    steps: usize,
    /// Whether it has arrived where and when it should.
    won: bool,
    /// Whether it has cost points on the way.
    paid: bool,
    luck: Stream,
}

impl Walk {
    fn over(&self) -> bool {
        !self.lake.map.cell(self.player).is_ice()
    }

    fn steps_left(&self) -> usize {
        self.lake.task.step_limit.saturating_sub(self.steps)
    }
}

impl Game for Walk {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        let lake = &self.lake;
        Ok(text::seen(
            &lake.map,
            self.player,
            self.steps,
            &lake.options,
        ))
    }

    fn key(&self, _: usize) -> Result<String, GameError> {
        let mut key = self.lake.map.in_short(self.player);
        if self.lake.task.exact.is_some() {
            key += &format!(" {}", self.steps);
        }
        Ok(key)
    }

    /// Player, ice (the start and the player's own cell included), hole, goal, and red ice where there is some.
    fn planes(&self, _: usize) -> Result<Option<Planes>, GameError> {
        let (map, options) = (&self.lake.map, &self.lake.options);
        let mut names = vec!["player", "ice", "hole", "goal"];
        if options.red > 0 {
            names.push("red ice");
        }
        let (height, width) = options.largest_sides(map);
        let mut planes = Planes::new(names, height, width);
        let place = |cell: usize| (cell / map.width(), cell % map.width());
        planes.set(0, place(self.player));
        for cell in 0..map.size() {
            let plane = match map.cell(cell) {
                Cell::Ice => 1,
                Cell::Hole => 2,
                Cell::Goal => 3,
                Cell::Red => 4,
            };
            planes.set(plane, place(cell));
        }
        planes.at = Some(place(self.player));
        Ok(Some(planes))
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        check_actions(NAME, actions, &[self.over()], ACTIONS.len());
        if self.over() {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        self.steps += 1;
        let task = &self.lake.task;
        if let Some(action) = actions[0] {
            let meant = self.lake.options.meant(action);
            let way = if task.slippery {
                map::slips(meant)[self.luck.below(3)]
            } else {
                meant
            };
            self.player = self.lake.map.neighbour(self.player, way);
        }
        let reward = task.reward(self.lake.map.cell(self.player), self.steps);
        self.paid |= reward < 0.0;
        self.won = reward > 0.0;
        Ok(vec![Outcome {
            reward,
            over: self.over(),
        }])
    }

    fn succeeded(&self, _: usize) -> bool {
        self.won && !self.paid
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        let (lake, left) = (&self.lake, self.steps_left());
        let ways = lake
            .plan()
            .best_actions(&lake.map, &lake.task, self.player, left);
        let mut actions: Vec<usize> = ways.iter().map(|&way| lake.options.meant(way)).collect();
        actions.sort();
        Some(actions)
    }

    fn optimum(&self, _: usize) -> Option<f64> {
        // Who stands at the goal has had its reward.
        Some(if self.over() {
            0.0
        } else {
            self.lake.plan().optimum(self.player, self.steps_left())
        })
    }

    fn habit(&self, _: usize) -> Option<Vec<usize>> {
        let (lake, left) = (&self.lake, self.steps_left());
        lake.options.changed().then(|| {
            let task = lake.options.usual_task();
            let plan = lake.habit.get_or_init(|| Plan::new(&lake.map, &task));
            plan.best_actions(&lake.map, &task, self.player, left)
        })
    }

    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        let luck = Stream::new(luck, SLIPS);
        Some(Box::new(Walk {
            luck,
            ..self.clone()
        }))
    }
}

#[cfg(test)]
mod tests;
