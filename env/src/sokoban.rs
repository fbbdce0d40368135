//! Sokoban: push every box onto a target; boxes cannot be pulled.
//!
//! After `gym_sokoban` 0.0.6 and Boxoban's levels.
//! `docs/games/sokoban.md` describes the rules, the scripted player and the departures from the source.

mod draw;
mod file;
mod level;
mod options;
mod plan;
mod text;

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::options::{OptionsError, Phrasing, View, probes, variants};
use crate::rng::Stream;
use crate::{Game, GameError, GameOptions, Kind, Legend, Outcome, Scenario, check_actions, sorted};
use draw::DrawnLevel;
use level::{Level, Position};
use options::{BoxGoal, SokobanOptions};
use plan::Solution;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Push every box onto a target; boxes cannot be pulled.",
    options: SokobanOptions::LIST,
    variants: variants! {
        SokobanOptions;
        /// 6x6 with 1 box, as in RAGEN, 15 steps.
        "sokoban-small": size = Some(6), boxes = 1, step_limit = 15;
        /// 6x6 with 3 boxes, 30 steps.
        "sokoban-textarena": size = Some(6), boxes = 3, step_limit = 30;
        /// 10x10 with 4 boxes, as gym_sokoban's default, 120 steps.
        "sokoban-standard": size = Some(10), boxes = 4, effort = 3000, step_limit = 120;
    },
    probes: probes! {
        SokobanOptions;
        /// Targets are traps: boxes on them cost points.
        "off", Blatant: goal = BoxGoal::Off;
        /// The words left and right swap their meanings.
        "swapped", Plain: swapped = true;
        /// A box on a target gives 3 points, and all of them 5.
        "worth", Subtle: box_reward = 3.0, done_reward = 5.0;
        /// Other signs in the picture.
        "symbols", Subtle: symbols = Phrasing::Other;
        /// The same rules in other words.
        "wording", Subtle: wording = Phrasing::Other;
    },
    configure: |options| Ok(Box::new(Sokoban::new(options)?)),
};

const NAME: &str = "sokoban";

static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["up", "down", "left", "right"].map(str::to_owned));

#[derive(Debug)]
struct Sokoban {
    options: SokobanOptions,
    /// The levels of the file `levels`.
    given: Option<Vec<(Arc<Level>, Position)>>,
}

impl Sokoban {
    fn new(given: &Value) -> Result<Sokoban, OptionsError> {
        let (options, levels) = SokobanOptions::checked(given)?;
        let shared = |(level, state)| (Arc::new(level), state);
        Ok(Sokoban {
            options,
            given: levels.map(|levels| levels.into_iter().map(shared).collect()),
        })
    }
}

impl Scenario for Sokoban {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        let options = &self.options;
        let mut rules = String::from(options.wording.either(
            "You push boxes in a room. Each step goes one cell and pushes a box ahead if the cell behind it is free.",
            "You work in a store. A step takes you one place on; a crate there moves on too, unless something is behind it.",
        ));
        if options.view == View::Board {
            rules += &format!(" {}.", text::legend(options.symbols));
        }
        if options.swapped {
            rules += " left and right are swapped: left goes to the right, right to the left.";
        }
        let (each, all) = (options.box_reward, options.done_reward);
        rules += &match (options.goal, options.wording) {
            (BoxGoal::On, Phrasing::Usual) => {
                format!(" Push all boxes onto targets: each gives {each}, all give {all}.")
            }
            (BoxGoal::On, Phrasing::Other) => {
                format!(" Every crate belongs on a mark: {each} points for one, {all} for all.")
            }
            (BoxGoal::Off, Phrasing::Usual) => format!(
                " Targets are traps: a box on one costs {each}, all cost {all}. Keep boxes off them."
            ),
            (BoxGoal::Off, Phrasing::Other) => format!(
                " Marks are traps: a crate on one costs {each} points, all cost {all}. Keep them off."
            ),
        };
        rules + &format!(" A step costs {}.", -options.step_reward)
    }

    fn actions(&self) -> &[String] {
        &*ACTIONS
    }

    fn start(&self, scene: u64, _: u64) -> Result<Box<dyn Game>, GameError> {
        let (level, state, record) = match &self.given {
            Some(levels) => {
                let (level, state) = &levels[(scene % levels.len() as u64) as usize];
                (level.clone(), *state, Vec::new())
            }
            None => {
                let (options, mut stream) = (&self.options, Stream::new(scene, "sokoban level"));
                let (width, height) = options.sides();
                let (boxes, effort) = (options.boxes, options.effort);
                let DrawnLevel {
                    level,
                    start,
                    solution,
                } = draw::draw(width, height, boxes, effort, &mut stream);
                (Arc::new(level), start, solution)
            }
        };
        Ok(Box::new(SokobanEpisode {
            options: self.options.clone(),
            steps: 0,
            record: Some(record).filter(|record| !record.is_empty()),
            plan: RefCell::new(None),
            level,
            state,
        }))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        let (each, all) = self.options.rewards();
        let step = self.options.step_reward;
        let (off, on) = (-each, each + all);
        Some((step + off.min(on), step + off.max(on)))
    }

    fn step_limit(&self) -> usize {
        self.options.step_limit
    }

    fn options(&self) -> Value {
        let mut options = self.options.in_force();
        if let (Some(_), Some(table)) = (&self.given, options.as_object_mut()) {
            table.retain(|name, _| !options::DRAWN.contains(&name.as_str()));
        }
        options
    }

    fn legend(&self) -> Legend {
        text::role
    }
}

#[derive(Clone)]
struct SokobanEpisode {
    options: SokobanOptions,
    level: Arc<Level>,
    state: Position,
    steps: usize,
    /// The remaining moves of the solution known from drawing the level, while the player keeps to it.
    record: Option<Vec<usize>>,
    /// The last position that was searched and its solution. Searching can take long.
    plan: RefCell<Option<(Position, Solution)>>,
}

impl SokobanEpisode {
    fn over(&self) -> bool {
        self.level.solved(&self.state)
    }

    fn solution(&self) -> Solution {
        let mut plan = self.plan.borrow_mut();
        match &*plan {
            Some((state, solution)) if *state == self.state => solution.clone(),
            _ => {
                let solution = plan::solve(&self.level, &self.state);
                *plan = Some((self.state, solution.clone()));
                solution
            }
        }
    }

    /// Returns the scripted player's moves towards boxes on targets.
    fn ways_on(&self) -> Vec<usize> {
        let all = || (0..4).collect();
        match (self.solution(), &self.record) {
            (Solution::Shortest(ways), _) => ways.first().map_or_else(all, |&way| vec![way]),
            (Solution::Unknown, Some(record)) => record.first().map_or_else(all, |&way| vec![way]),
            _ => {
                let pushes = self.level.pushes();
                let lost = |it: &Position| it.boxes().filter(|&at| pushes[at].is_none()).count();
                self.ways_by(|after| -(lost(after) as i64))
            }
        }
    }

    /// Returns the moves that lead to the highest worth.
    fn ways_by(&self, worth: impl Fn(&Position) -> i64) -> Vec<usize> {
        let after = |way| self.level.step(&self.state, way).unwrap_or(self.state);
        let worths: Vec<i64> = (0..4).map(|way| worth(&after(way))).collect();
        let highest = worths.iter().max();
        (0..4)
            .filter(|&way| Some(&worths[way]) == highest)
            .collect()
    }
}

impl Game for SokobanEpisode {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        let (level, state, symbols) = (&self.level, &self.state, self.options.symbols);
        Ok(match self.options.view {
            View::Board => text::board(level, state, symbols),
            View::Full => text::full(level, state, symbols, self.options.swapped),
        })
    }

    fn key(&self, _: usize) -> Result<String, GameError> {
        Ok(text::key(&self.level, &self.state))
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        check_actions(NAME, actions, &[self.over()], ACTIONS.len());
        if self.over() {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        self.steps += 1;
        let before = self.level.on_targets(&self.state);
        if let Some(action) = actions[0] {
            let way = self.options.meant(action);
            if let Some(after) = self.level.step(&self.state, way) {
                self.state = after;
                let kept = self.record.take().filter(|it| it.first() == Some(&way));
                self.record = kept.map(|record| record[1..].to_vec());
            }
        }
        let (each, all) = self.options.rewards();
        let on = self.level.on_targets(&self.state) as f64 - before as f64;
        let done = if self.over() { all } else { 0.0 };
        Ok(vec![Outcome {
            reward: self.options.step_reward + on * each + done,
            over: self.over(),
        }])
    }

    fn succeeded(&self, _: usize) -> bool {
        match self.options.goal {
            BoxGoal::On => self.over(),
            BoxGoal::Off => self.level.on_targets(&self.state) == 0,
        }
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        let ways = match self.options.goal {
            BoxGoal::On => self.ways_on(),
            BoxGoal::Off => self.ways_by(|after| -(self.level.on_targets(after) as i64)),
        };
        Some(sorted(ways, |way| self.options.meant(way)))
    }

    fn optimum(&self, _: usize) -> Option<f64> {
        if self.over() {
            return Some(0.0);
        }
        let (each, all) = self.options.rewards();
        match self.solution() {
            Solution::Shortest(ways)
                if self.options.goal == BoxGoal::On
                    && self.steps + ways.len() <= self.options.step_limit =>
            {
                let left = self.state.boxes().count() - self.level.on_targets(&self.state);
                Some(ways.len() as f64 * self.options.step_reward + left as f64 * each + all)
            }
            _ => None,
        }
    }

    fn habit(&self, _: usize) -> Option<Vec<usize>> {
        let habit = || sorted(self.ways_on(), |way| way);
        self.options.changed().then(habit)
    }

    fn fork(&self, _: u64) -> Option<Box<dyn Game>> {
        Some(Box::new(self.clone()))
    }
}

#[cfg(test)]
mod tests;
