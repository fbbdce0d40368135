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
use std::sync::Arc;

use serde_json::Value;

use crate::options::{OptionsError, Phrasing, View, presets};
use crate::rng::Stream;
use crate::{
    DeclaredOptions, Game, GameError, Kind, LEFT_RIGHT, Legend, Outcome, Scenario,
    UP_DOWN_LEFT_RIGHT, actions_for, check_actions, meant,
};
use level::{Level, Levels, Position};
use options::{BoxGoal, SokobanOptions};
use plan::Solution;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Push every box onto a target; boxes cannot be pulled.",
    options: SokobanOptions::LIST,
    variants: presets! {
        GameVariant of SokobanOptions;
        /// 6x6 with 1 box, as in RAGEN, 15 steps.
        "sokoban-small": size = Some(6), boxes = 1, step_limit = 15;
        /// 6x6 with 3 boxes, 30 steps.
        "sokoban-textarena": size = Some(6), boxes = 3, step_limit = 30;
        /// 10x10 with 4 boxes, as gym_sokoban's default, 120 steps.
        "sokoban-standard": size = Some(10), boxes = 4, effort = 3000, step_limit = 120;
    },
    probes: presets! {
        SemanticProbe of SokobanOptions;
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

#[derive(Debug)]
struct Sokoban {
    options: SokobanOptions,
    given: Option<Levels>,
}

impl Sokoban {
    fn new(given: &Value) -> Result<Sokoban, OptionsError> {
        let (options, given) = SokobanOptions::checked(given)?;
        Ok(Sokoban { options, given })
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
        &*UP_DOWN_LEFT_RIGHT
    }

    fn start(&self, scene: u64, _: u64) -> Result<Box<dyn Game>, GameError> {
        let (level, state, record) = match &self.given {
            Some(levels) => {
                let (level, state) = &levels[(scene % levels.len() as u64) as usize];
                (level.clone(), *state, Vec::new())
            }
            None => {
                let (width, height) = self.options.sides();
                let (boxes, effort) = (self.options.boxes, self.options.effort);
                let mut stream = Stream::new(scene, "sokoban level");
                let drawn = draw::draw(width, height, boxes, effort, &mut stream);
                (Arc::new(drawn.level), drawn.start, drawn.solution)
            }
        };
        Ok(Box::new(SokobanEpisode {
            options: self.options.clone(),
            steps: 0,
            record,
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
        let replaced = self.given.as_ref().map(|_| options::DRAWN);
        self.options.in_force(replaced)
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
    record: Vec<usize>,
    /// The last position that was searched and its solution. Searching can take long.
    plan: RefCell<Option<(Position, Solution)>>,
}

impl SokobanEpisode {
    fn over(&self) -> bool {
        self.level.solved(&self.state)
    }

    fn solution(&self) -> Solution {
        let mut plan = self.plan.borrow_mut();
        if let Some((state, solution)) = &*plan
            && *state == self.state
        {
            return solution.clone();
        }
        let solution = plan::solve(&self.level, &self.state);
        *plan = Some((self.state, solution.clone()));
        solution
    }

    /// Returns the scripted player's moves towards boxes on targets.
    fn ways_on(&self) -> Vec<usize> {
        match (self.solution(), &self.record[..]) {
            (Solution::Shortest(ways), _) if ways.is_empty() => (0..4).collect(),
            (Solution::Shortest(ways), _) => vec![ways[0]],
            (Solution::Unknown, [way, ..]) => vec![*way],
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
        check_actions(NAME, actions, &[self.over()], UP_DOWN_LEFT_RIGHT.len());
        if self.over() {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        self.steps += 1;
        let before = self.level.on_targets(&self.state);
        if let Some(action) = actions[0] {
            let way = meant(action, self.options.swapped, LEFT_RIGHT);
            if let Some(after) = self.level.step(&self.state, way) {
                self.state = after;
                let kept = self.record.strip_prefix(&[way]);
                self.record = kept.unwrap_or_default().to_vec();
            }
        }
        let (each, all) = self.options.rewards();
        let on = self.level.on_targets(&self.state) as f64 - before as f64;
        let done = if self.over() { all } else { 0.0 };
        let (reward, over) = (self.options.step_reward + on * each + done, self.over());
        Ok(vec![Outcome { reward, over }])
    }

    fn succeeded(&self, _: usize) -> bool {
        match self.options.goal {
            BoxGoal::On => self.over(),
            BoxGoal::Off => self.level.on_targets(&self.state) == 0,
        }
    }

    fn ending(&self, _: usize) -> Option<&'static str> {
        self.over().then_some("all boxes are on targets")
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        let ways = match self.options.goal {
            BoxGoal::On => self.ways_on(),
            BoxGoal::Off => self.ways_by(|after| -(self.level.on_targets(after) as i64)),
        };
        Some(actions_for(ways, self.options.swapped, LEFT_RIGHT))
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
        self.options.changed().then(|| self.ways_on())
    }

    fn fork(&self, _: u64) -> Option<Box<dyn Game>> {
        Some(Box::new(self.clone()))
    }
}

#[cfg(test)]
mod tests;
