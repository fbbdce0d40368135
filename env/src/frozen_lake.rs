//! Frozen Lake: walk over the ice to the goal without falling into a hole.
//!
//! After Gymnasium's `FrozenLake-v1`.
//! `docs/games/frozen-lake.md` describes the rules, the scripted player and the departures from the source.

mod map;
mod options;
mod plan;
mod text;

use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::Value;

use crate::options::{OptionsError, Phrasing, presets};
use crate::rng::Stream;
use crate::{
    DeclaredOptions, Game, GameError, Kind, Legend, Outcome, Planes, Scenario, actions_for,
    check_actions, meant,
};
use map::{LakeCell, LakeMap};
use options::{LakeOptions, LakeTarget};
use plan::LakePlan;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Walk over the ice to the goal without falling into a hole, on firm or slippery ice.",
    options: LakeOptions::LIST,
    variants: presets! {
        GameVariant of LakeOptions;
        /// 4x4 and firm, 20 steps: the defaults.
        "frozen-lake-firm": size = Some(4), frozen = 0.8, step_limit = 20;
        /// 4x4 and slippery, 40 steps: the game of the preset of this name.
        "frozen-lake-slippery": slippery = true, step_limit = 40;
        /// Sides of 6 to 8, firm, 40 steps: the game of the preset of this name.
        "frozen-lake-large": size = Some(6), largest = Some(8), step_limit = 40;
        /// 8x8 with few holes, slippery, 100 steps.
        "frozen-lake-big-slippery": size = Some(8), frozen = 0.9, slippery = true, step_limit = 100;
        /// Gymnasium's standard map, slippery, 100 steps.
        "frozen-lake-fixed": map = Some(["SFFF", "FHFH", "FFFH", "HFFG"].map(str::to_owned).into()), slippery = true, step_limit = 100;
        /// 4x4 and firm, 8 steps: what the first author of MS-GRPO trains on.
        "frozen-lake-author-firm": size = Some(4), frozen = 0.8, step_limit = 8;
        /// 4x4 with few holes, slippery, 15 steps: the author's slippery evaluation.
        "frozen-lake-author-slippery": size = Some(4), frozen = 0.9, slippery = true, step_limit = 15;
    },
    probes: presets! {
        SemanticProbe of LakeOptions;
        /// The holes are the way to win, and the goal gives nothing.
        "holes", Blatant: target = LakeTarget::Holes;
        /// The words left and right swap their meanings.
        "swapped", Plain: swapped = true;
        /// Some ice is red, and each step that ends on it costs a point.
        "red", Plain: red = 4;
        /// The goal counts at step 8 only, neither sooner nor later.
        "exact", Subtle: exact = Some(8);
        /// Other signs stand for the player, ice, holes and the goal.
        "symbols", Subtle: symbols = Phrasing::Other;
        /// The same rules in other words.
        "wording", Subtle: wording = Phrasing::Other;
    },
    configure: |options| Ok(Box::new(FrozenLake::new(options)?)),
};

const NAME: &str = "frozen-lake";

/// In Gymnasium's order: a move slips to its neighbours in this circle.
static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["left", "down", "right", "up"].map(str::to_owned));

/// The places of left and right in it.
const LEFT_RIGHT: [usize; 2] = [0, 2];

#[derive(Debug)]
struct FrozenLake {
    options: Arc<LakeOptions>,
    /// The lake of the options' map, before ice turns red.
    given: Option<Arc<Lake>>,
}

impl FrozenLake {
    fn new(given: &Value) -> Result<FrozenLake, OptionsError> {
        let (options, map) = LakeOptions::checked(given)?;
        let options = Arc::new(options);
        Ok(FrozenLake {
            given: map.map(|map| Arc::new(Lake::new(map, options.clone()))),
            options,
        })
    }

    fn lake(&self, scene: u64) -> Arc<Lake> {
        let mut map = match &self.given {
            Some(lake) if self.options.red == 0 => return lake.clone(),
            Some(lake) => lake.map.clone(),
            None => self.draw(scene),
        };
        // With its own stream the lake below the red ice is that of the usual game.
        let mut stream = Stream::new(scene, "frozen-lake red");
        map.redden(self.options.red, &mut stream);
        Arc::new(Lake::new(map, self.options.clone()))
    }

    fn draw(&self, scene: u64) -> LakeMap {
        // With its own stream a lake whose sides are drawn is that of an option `size`.
        let mut sides = Stream::new(scene, "frozen-lake sides");
        let [width, height] = self
            .options
            .sides()
            .map(|side| side.start() + sides.below(side.end() - side.start() + 1));
        let mut cells = Stream::new(scene, "frozen-lake map");
        LakeMap::draw(width, height, self.options.frozen, &mut cells)
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
        let player = lake.map.start;
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
        let replaced = self.given.as_ref().map(|_| options::DRAWN);
        self.options.in_force(replaced)
    }

    fn legend(&self) -> Legend {
        text::role
    }
}

/// The state that an episode shares with its forks, and with other episodes on a given map.
#[derive(Debug)]
struct Lake {
    map: LakeMap,
    options: Arc<LakeOptions>,
    /// Made on demand: most episodes need none.
    plan: OnceLock<LakePlan>,
    /// The plan for the usual instructions.
    habit: OnceLock<LakePlan>,
}

impl Lake {
    fn new(map: LakeMap, options: Arc<LakeOptions>) -> Lake {
        Lake {
            map,
            options,
            plan: OnceLock::new(),
            habit: OnceLock::new(),
        }
    }

    fn plan(&self) -> &LakePlan {
        self.plan
            .get_or_init(|| LakePlan::new(&self.map, &self.options))
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
        !self.lake.map.cells[self.player].is_ice()
    }

    fn steps_left(&self) -> usize {
        self.lake.options.step_limit.saturating_sub(self.steps)
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
        let mut key = self.lake.map.key(self.player, true);
        if self.lake.options.exact.is_some() {
            key += &format!(" {}", self.steps);
        }
        Ok(key)
    }

    fn map(&self, _: usize) -> Result<String, GameError> {
        Ok(self.lake.map.key(self.player, false))
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
        let place = |cell: usize| (cell / map.width, cell % map.width);
        planes.set(0, place(self.player));
        for (cell, kind) in map.cells.iter().enumerate() {
            let plane = match kind {
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
        let (map, options) = (&self.lake.map, &self.lake.options);
        if let Some(action) = actions[0] {
            let mut way = meant(action, options.swapped, LEFT_RIGHT);
            if options.slippery {
                way = map::slips(way)[self.luck.below(3)];
            }
            self.player = map.neighbour(self.player, way);
        }
        let reward = options.reward(map.cells[self.player], self.steps);
        self.paid |= reward < 0.0;
        self.won = reward > 0.0;
        let over = self.over();
        Ok(vec![Outcome { reward, over }])
    }

    fn succeeded(&self, _: usize) -> bool {
        self.won && !self.paid
    }

    fn ending(&self, _: usize) -> Option<&'static str> {
        match self.lake.map.cells[self.player] {
            LakeCell::Hole => Some("fell into a hole"),
            LakeCell::Goal if self.won || self.lake.options.exact.is_none() => {
                Some("reached the goal")
            }
            LakeCell::Goal => Some("reached the goal at the wrong step"),
            LakeCell::Ice | LakeCell::Red => None,
        }
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        let Lake { map, options, .. } = &*self.lake;
        let plan = self.lake.plan();
        let ways = plan.best_actions(map, options, self.player, self.steps_left());
        Some(actions_for(ways, options.swapped, LEFT_RIGHT))
    }

    fn optimum(&self, _: usize) -> Option<f64> {
        Some(if self.over() {
            0.0
        } else {
            self.lake.plan().optimum(self.player, self.steps_left())
        })
    }

    fn habit(&self, _: usize) -> Option<Vec<usize>> {
        let lake = &self.lake;
        lake.options.changed().then(|| {
            let usual = lake.options.usual();
            let plan = lake.habit.get_or_init(|| LakePlan::new(&lake.map, &usual));
            plan.best_actions(&lake.map, &usual, self.player, self.steps_left())
        })
    }

    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        let mut fork = self.clone();
        fork.luck = Stream::new(luck, SLIPS);
        Some(Box::new(fork))
    }
}

#[cfg(test)]
mod tests;
