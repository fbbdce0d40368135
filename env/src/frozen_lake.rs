//! Frozen Lake: walk over the ice to the goal without falling into a hole.
//!
//! After Gymnasium's `FrozenLake-v1`.
//! `docs/games/frozen-lake.md` describes the rules, the scripted player and the departures from the source.

mod map;
mod named;
mod options;
mod plan;
mod text;

use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::Value;

use crate::options::OptionsError;
use crate::rng::Stream;
use crate::{
    Game, GameError, GameOptions, Kind, Legend, Outcome, Planes, Scenario, check_actions, sorted,
};
use map::{LakeCell, LakeMap};
use options::{LakeOptions, LakeTask};
use plan::LakePlan;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Walk over the ice to the goal without falling into a hole, on firm or slippery ice.",
    options: LakeOptions::LIST,
    variants: named::VARIANTS,
    probes: named::PROBES,
    configure: |options| Ok(Box::new(FrozenLake::new(options)?)),
};

const NAME: &str = "frozen-lake";

/// In Gymnasium's order: a move slips to its neighbours in this circle.
static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["left", "down", "right", "up"].map(str::to_owned));

#[derive(Debug)]
struct FrozenLake {
    options: Arc<LakeOptions>,
    /// The map of the options.
    map: Option<LakeMap>,
    /// The lake of all scenes, if the scene draws nothing.
    given: Option<Arc<Lake>>,
}

impl FrozenLake {
    fn new(given: &Value) -> Result<FrozenLake, OptionsError> {
        let (options, map) = LakeOptions::checked(given)?;
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
            // With its own stream the lake below the red ice is that of the usual game.
            let mut stream = Stream::new(scene, "frozen-lake red");
            map.redden(self.options.red, &mut stream);
        }
        Arc::new(Lake::new(map, self.options.clone()))
    }

    fn draw(&self, scene: u64) -> LakeMap {
        let options = &self.options;
        // With its own stream a lake whose sides are drawn is that of an option `size`.
        let mut sides = Stream::new(scene, "frozen-lake sides");
        let [width, height] = options
            .sides()
            .map(|side| side.start() + sides.below(side.end() - side.start() + 1));
        let mut cells = Stream::new(scene, "frozen-lake map");
        LakeMap::draw(width, height, options.frozen, &mut cells)
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
        Ok(Box::new(LakeEpisode {
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
        let mut options = self.options.in_force();
        if let (Some(_), Some(table)) = (&self.map, options.as_object_mut()) {
            table.retain(|name, _| !options::DRAWN.contains(&name.as_str()));
        }
        options
    }

    fn legend(&self) -> Legend {
        text::role
    }
}

/// The state that the episodes of a scene share.
#[derive(Debug)]
struct Lake {
    map: LakeMap,
    options: Arc<LakeOptions>,
    task: LakeTask,
    /// Made on demand: most episodes need none.
    plan: OnceLock<LakePlan>,
    /// The plan for the usual instructions.
    habit: OnceLock<LakePlan>,
}

impl Lake {
    fn new(map: LakeMap, options: Arc<LakeOptions>) -> Lake {
        Lake {
            map,
            task: options.task(),
            options,
            plan: OnceLock::new(),
            habit: OnceLock::new(),
        }
    }

    fn plan(&self) -> &LakePlan {
        self.plan
            .get_or_init(|| LakePlan::new(&self.map, &self.task))
    }
}

const SLIPS: &str = "frozen-lake slips";

#[derive(Clone)]
struct LakeEpisode {
    lake: Arc<Lake>,
    player: usize,
    steps: usize,
    /// Whether the target was reached, at the exact step if there is one.
    won: bool,
    /// Whether a step ended on red ice.
    paid: bool,
    luck: Stream,
}

impl LakeEpisode {
    fn over(&self) -> bool {
        !self.lake.map.cell(self.player).is_ice()
    }

    fn steps_left(&self) -> usize {
        self.lake.task.step_limit.saturating_sub(self.steps)
    }
}

impl Game for LakeEpisode {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        let lake = &self.lake;
        Ok(text::observation(
            &lake.map,
            self.player,
            self.steps,
            &lake.options,
        ))
    }

    fn key(&self, _: usize) -> Result<String, GameError> {
        let mut key = self.lake.map.key(self.player);
        if self.lake.task.exact.is_some() {
            key += &format!(" {}", self.steps);
        }
        Ok(key)
    }

    /// Player, ice (the start and the player's cell included), hole, goal, and red ice if the options have it.
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
                LakeCell::Ice => 1,
                LakeCell::Hole => 2,
                LakeCell::Goal => 3,
                LakeCell::Red => 4,
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
        Some(sorted(ways, |way| lake.options.meant(way)))
    }

    fn optimum(&self, _: usize) -> Option<f64> {
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
            let plan = lake.habit.get_or_init(|| LakePlan::new(&lake.map, &task));
            plan.best_actions(&lake.map, &task, self.player, left)
        })
    }

    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        let luck = Stream::new(luck, SLIPS);
        Some(Box::new(LakeEpisode {
            luck,
            ..self.clone()
        }))
    }
}

#[cfg(test)]
mod tests;
