//! Sokoban: push every box onto a target; boxes cannot be pulled.
//!
//! **Description.** A room of walls, boxes and as many targets, after `gym_sokoban` (0.0.6) and Boxoban's levels.
//!
//! **Actions.** `up`, `down`, `left`, `right` move the player by one cell and push a box that is there, if the cell
//! behind it is free. A wall or a second box stops the player. It also stays after an unreadable action; the step counts.
//!
//! **Observation.** `view = "board"`: the rows from top to bottom, one character per cell with spaces between: `#` wall,
//! `_` floor, `O` target, `X` box, `V` box on a target, `P` player, `S` player on a target. These are RAGEN's signs except
//! for its `√`, which costs tokenizers several tokens. `symbols = "other"`: `W . T B * @ +`. `view = "full"` adds
//! coordinates, column and row from (0, 0) at the bottom left, and a key. The key of a state is the board, in both views.
//!
//! **Start.** Drawn from the scene: a random walk clears a room, boxes stand on their targets, and reverse play, in which
//! the player pulls, scatters them. Of the states visited in four rooms, at most `effort` per room, the start is the one
//! with the highest product of changes between boxes and their distances from targets. So every drawn level can be
//! solved, and none is solved at the start. With `levels`, a file in Boxoban's format, the scene selects a level: the
//! remainder of scene by number of levels. These are not checked for being solvable. Luck has no effect.
//!
//! **Rewards.** Each step gives `step_reward`, a box that gets onto a target `box_reward`, a box that leaves one the
//! negative of that, all boxes on targets `done_reward`. The episode succeeds with all boxes on targets. With
//! `goal = "off"` the rewards of boxes are costs, and the episode succeeds if no box is on a target.
//!
//! **End.** When all boxes are on targets. The referee's step limit is `step_limit`.
//!
//! **Options.** See `options.rs`. An option that has no effect beside another is refused.
//!
//! **Scripted player.** The first step of a shortest solution, by A* over at most 20,000 states. If these are not enough,
//! it follows the solution known from drawing the level while the player keeps to it, and otherwise avoids losing a box
//! for good. With `goal = "off"` it pushes no box onto a target and prefers to push one off.
//!
//! **Optimum.** Known where the search finds a shortest solution within the remaining steps of `step_limit`. Rewards of
//! boxes add up to the number that comes onto targets by the end, and a step never gives a positive reward, so nothing
//! brings more than a shortest solution.
//!
//! **Departures from gym_sokoban.** Episodes share no state, and there is no recursion. A room without a level is drawn
//! again, up to 50 times in all; then an open room takes its place, so that starting always ends. Reverse play measures a
//! box's distance to the nearest target, there to its own.

mod draw;
mod file;
mod level;
mod options;
mod plan;
mod text;

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::options::{OptionsError, Phrasing, View, set};
use crate::rng::Stream;
use crate::{
    Game, GameError, GameOptions, GameVariant, Kind, Legend, Outcome, Scenario, SemanticProbe,
    Subtlety, check_actions, sorted,
};
use draw::DrawnLevel;
use level::{Level, Position};
use options::{BoxGoal, SokobanOptions};
use plan::Solution;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Push every box onto a target; boxes cannot be pulled.",
    options: SokobanOptions::LIST,
    variants: &[
        GameVariant {
            name: "sokoban-small",
            summary: "6x6 with 1 box, as in RAGEN, 15 steps.",
            set: set!(SokobanOptions, size = Some(6), boxes = 1, step_limit = 15),
        },
        GameVariant {
            name: "sokoban-textarena",
            summary: "6x6 with 3 boxes, 30 steps.",
            set: set!(SokobanOptions, size = Some(6), boxes = 3, step_limit = 30),
        },
        GameVariant {
            name: "sokoban-standard",
            summary: "10x10 with 4 boxes, as gym_sokoban's default, 120 steps.",
            set: set!(
                SokobanOptions,
                size = Some(10),
                boxes = 4,
                effort = 3000,
                step_limit = 120
            ),
        },
    ],
    probes: &[
        SemanticProbe {
            name: "off",
            summary: "Targets are traps: what boxes on them brought they cost.",
            subtlety: Subtlety::Blatant,
            set: set!(SokobanOptions, goal = BoxGoal::Off),
        },
        SemanticProbe {
            name: "swapped",
            summary: "The words left and right have changed their meaning.",
            subtlety: Subtlety::Plain,
            set: set!(SokobanOptions, swapped = true),
        },
        SemanticProbe {
            name: "worth",
            summary: "A box on a target brings 3 points, and all of them 5.",
            subtlety: Subtlety::Subtle,
            set: set!(SokobanOptions, box_reward = 3.0, done_reward = 5.0),
        },
        SemanticProbe {
            name: "symbols",
            summary: "The picture has other signs.",
            subtlety: Subtlety::Subtle,
            set: set!(SokobanOptions, symbols = Phrasing::Other),
        },
        SemanticProbe {
            name: "wording",
            summary: "The same rules in other words.",
            subtlety: Subtlety::Subtle,
            set: set!(SokobanOptions, wording = Phrasing::Other),
        },
    ],
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
        let mut rules = String::from(match options.wording {
            Phrasing::Usual => {
                "You push boxes in a room. Each step goes one cell and pushes a box ahead if the cell behind it is free."
            }
            Phrasing::Other => {
                "You work in a store. A step takes you one place on; a crate there moves on too, unless something is behind it."
            }
        });
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
