//! Sokoban: push every box onto a target; boxes cannot be pulled.
//!
//! **Description.** A room of walls, boxes and as many targets, after `gym_sokoban` (0.0.6) and Boxoban's levels.
//!
//! **Actions.** `up`, `down`, `left`, `right`: the player goes one cell that way and pushes a box that is there along,
//! if the cell behind it is free. A wall or a second box stops it, and so it stays if the action could not be read; the
//! step counts.
//!
//! **Observation.** `view = "board"`: the rows from top to bottom, one character a cell with spaces between: `#` wall,
//! `_` floor, `O` target, `X` box, `V` box on a target, `P` player, `S` player on a target. (RAGEN's signs, but for its
//! `√`, which costs tokenizers several tokens.) `symbols = "other"`: `W . T B * @ +`. `view = "full"` puts coordinates
//! and a key above the board: column and row from (0, 0) at the bottom left. The key of a state is the board, in either
//! view; how many steps were taken is no part of it.
//!
//! **Start.** Drawn from the scene: a random walk clears a room, boxes stand on their targets, and play in reverse (the
//! player pulls) scatters them; of the states that it came to in four rooms, `effort` in each at most, the one is the
//! start that has the most changes between boxes times distance of boxes from targets. So every level can be solved, and
//! no start is solved.
//! With `levels`, a file in Boxoban's format, the scene picks the level: the remainder of scene by number of levels.
//! Those are not checked for being solvable. Luck has no part in the game.
//!
//! **Rewards.** Each step `step_reward`; a box onto a target `box_reward`, off it as much less; all on targets
//! `done_reward`. Success is having all on targets. With `goal = "off"` targets are traps: rewards of boxes are
//! costs, and success is to have none on a target.
//!
//! **End.** When all boxes are on targets. The referee's step limit is `step_limit` unless it is told otherwise.
//!
//! **Options.** `size` = 6, or `width` and `height` (5 to 15); `boxes` = 1; `effort` = 300; `levels` stands for all of
//! these; `goal` = "on"; `step_reward` = -0.1; `box_reward` = 1; `done_reward` = 10; `swapped` = false; `wording` and
//! `symbols` = "usual"; `step_limit` = 20; `view` = "board". An option that another leaves no use for is refused.
//!
//! **Scripted player.** The first step of a shortest solution, by A* over at most 20,000 states. If that is not enough,
//! the next step of the solution that making the level left behind, while it is on its way; then whatever loses no box
//! for good. With `goal = "off"`: whatever pushes no box onto a target, rather one off it.
//!
//! **Optimum.** Known where the search found a shortest solution that fits in the steps left of `step_limit`: what
//! boxes bring and cost on their way adds up to how many more are on targets at the end, so with steps that bring
//! nothing or cost, no play gets more than the shortest solution.
//!
//! **Departures from gym_sokoban.** No state is shared between episodes and nothing recurs; a room that comes to nothing
//! is drawn again, up to 50 in all, and then an open room stands in, so that starting always ends. There reverse play measures
//! each box's way from its own target, here to the nearest.

mod draw;
mod file;
mod level;
mod options;
mod plan;
mod text;

use std::cell::RefCell;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::options::{OptionsError, Put, View};
use crate::rng::Stream;
use crate::{Game, GameError, Kind, Outcome, Probe, Scenario, Subtlety, Variant, check_actions};
use level::{Level, State};
use options::{Goal, Options};
use plan::Found;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Push every box onto a target; boxes cannot be pulled.",
    options: options::OPTIONS,
    variants: &[
        Variant {
            name: "sokoban-small",
            summary: "6x6 with 1 box, as in RAGEN, 15 steps.",
            options: r#"{"size": 6, "boxes": 1, "step_limit": 15}"#,
        },
        Variant {
            name: "sokoban-textarena",
            summary: "6x6 with 3 boxes, 30 steps.",
            options: r#"{"size": 6, "boxes": 3, "step_limit": 30}"#,
        },
        Variant {
            name: "sokoban-standard",
            summary: "10x10 with 4 boxes, as gym_sokoban's default, 120 steps.",
            options: r#"{"size": 10, "boxes": 4, "effort": 3000, "step_limit": 120}"#,
        },
    ],
    probes: &[
        Probe {
            name: "off",
            summary: "Targets are traps: what boxes on them brought they cost.",
            subtlety: Subtlety::Blatant,
            options: r#"{"goal": "off"}"#,
        },
        Probe {
            name: "swapped",
            summary: "The words left and right have changed their meaning.",
            subtlety: Subtlety::Plain,
            options: r#"{"swapped": true}"#,
        },
        Probe {
            name: "worth",
            summary: "A box on a target brings 3 points, and all of them 5.",
            subtlety: Subtlety::Subtle,
            options: r#"{"box_reward": 3, "done_reward": 5}"#,
        },
        Probe {
            name: "symbols",
            summary: "The picture has other signs.",
            subtlety: Subtlety::Subtle,
            options: r#"{"symbols": "other"}"#,
        },
        Probe {
            name: "wording",
            summary: "The same rules in other words.",
            subtlety: Subtlety::Subtle,
            options: r#"{"wording": "other"}"#,
        },
    ],
    configure: |options| Ok(Box::new(Sokoban::new(options)?)),
};

const NAME: &str = "sokoban";

static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["up", "down", "left", "right"].map(str::to_owned));

#[derive(Debug)]
struct Sokoban {
    options: Options,
    /// The levels of the file, if there is one.
    given: Option<Vec<(Arc<Level>, State)>>,
}

impl Sokoban {
    fn new(given: &Value) -> Result<Sokoban, OptionsError> {
        let (options, levels) = Options::checked(given)?;
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
            Put::Usual => {
                "You push boxes in a room. Each step goes one cell and pushes a box ahead if the cell behind it is free."
            }
            Put::Other => {
                "You work in a store. A step takes you one place on; a crate there moves on too, unless something is behind it."
            }
        });
        if options.view == View::Board {
            rules += &format!(" {}.", text::key(options.symbols));
        }
        if options.swapped {
            rules += " left and right are swapped: left goes to the right, right to the left.";
        }
        let (each, all) = (options.box_reward, options.done_reward);
        rules += &match (options.goal, options.wording) {
            (Goal::On, Put::Usual) => {
                format!(" Push all boxes onto targets: each gives {each}, all give {all}.")
            }
            (Goal::On, Put::Other) => {
                format!(" Every crate belongs on a mark: {each} points for one, {all} for all.")
            }
            (Goal::Off, Put::Usual) => format!(
                " Targets are traps: a box on one costs {each}, all cost {all}. Keep boxes off them."
            ),
            (Goal::Off, Put::Other) => format!(
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
                let drawn = draw::draw(
                    width,
                    height,
                    options.boxes(),
                    options.effort(),
                    &mut stream,
                );
                (Arc::new(drawn.level), drawn.start, drawn.solution)
            }
        };
        Ok(Box::new(Episode {
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
        let bounds = [-each, each + all];
        Some((
            step + bounds[0].min(bounds[1]),
            step + bounds[0].max(bounds[1]),
        ))
    }

    fn step_limit(&self) -> usize {
        self.options.step_limit
    }

    fn options(&self) -> Value {
        crate::options::in_force(&self.options)
    }
}

#[derive(Clone)]
struct Episode {
    options: Options,
    level: Arc<Level>,
    state: State,
    steps: usize,
    /// The ways that are left of the solution that came with the level, while the player keeps to it.
    record: Option<Vec<usize>>,
    /// What was last found out by search, about which state. Kept because it may take long.
    plan: RefCell<Option<(State, Found)>>,
}

impl Episode {
    fn over(&self) -> bool {
        self.level.solved(&self.state)
    }

    fn found(&self) -> Found {
        let mut plan = self.plan.borrow_mut();
        match &*plan {
            Some((state, found)) if *state == self.state => found.clone(),
            _ => {
                let found = plan::solve(&self.level, &self.state);
                *plan = Some((self.state, found.clone()));
                found
            }
        }
    }

    /// The ways of the scripted player where boxes are to come to targets.
    fn ways_on(&self) -> Vec<usize> {
        let all = || (0..4).collect();
        match (self.found(), &self.record) {
            (Found::Shortest(ways), _) => ways.first().map_or_else(all, |&way| vec![way]),
            (Found::Unknown, Some(record)) => record.first().map_or_else(all, |&way| vec![way]),
            _ => {
                let lost = |state: &State| {
                    state
                        .boxes()
                        .filter(|&cell| self.level.pushes()[cell].is_none())
                        .count()
                };
                self.ways_by(|after| -(lost(after) as i64))
            }
        }
    }

    /// The ways after which the worth is highest; who is stopped stays.
    fn ways_by(&self, worth: impl Fn(&State) -> i64) -> Vec<usize> {
        let after = |way| self.level.step(&self.state, way).unwrap_or(self.state);
        let worths: Vec<i64> = (0..4).map(|way| worth(&after(way))).collect();
        let highest = worths.iter().max();
        (0..4)
            .filter(|&way| Some(&worths[way]) == highest)
            .collect()
    }

    fn actions(&self, ways: Vec<usize>) -> Vec<usize> {
        let mut actions: Vec<usize> = ways.into_iter().map(|way| self.options.way(way)).collect();
        actions.sort_unstable();
        actions
    }
}

impl Game for Episode {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        let (level, state, symbols) = (&self.level, &self.state, self.options.symbols);
        Ok(match self.options.view {
            View::Board => text::board(level, state, symbols),
            View::Full => text::told(level, state, symbols, self.options.swapped),
        })
    }

    fn key(&self, _: usize) -> Result<String, GameError> {
        Ok(text::in_short(&self.level, &self.state))
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        check_actions(NAME, actions, &[self.over()], ACTIONS.len());
        if self.over() {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        self.steps += 1;
        let before = self.level.on_targets(&self.state);
        if let Some(action) = actions[0] {
            let way = self.options.way(action);
            let kept = self
                .record
                .as_ref()
                .is_some_and(|record| record.first() == Some(&way));
            if let Some(after) = self.level.step(&self.state, way) {
                self.state = after;
                self.record = self
                    .record
                    .take()
                    .filter(|_| kept)
                    .map(|record| record[1..].to_vec());
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
            Goal::On => self.over(),
            Goal::Off => self.level.on_targets(&self.state) == 0,
        }
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        let ways = match self.options.goal {
            Goal::On => self.ways_on(),
            Goal::Off => self.ways_by(|after| -(self.level.on_targets(after) as i64)),
        };
        Some(self.actions(ways))
    }

    fn optimum(&self, _: usize) -> Option<f64> {
        if self.over() {
            return Some(0.0);
        }
        let (each, all) = self.options.rewards();
        match self.found() {
            Found::Shortest(ways)
                if self.options.goal == Goal::On
                    && self.steps + ways.len() <= self.options.step_limit =>
            {
                let left = self.state.boxes().count() - self.level.on_targets(&self.state);
                Some(ways.len() as f64 * self.options.step_reward + left as f64 * each + all)
            }
            _ => None,
        }
    }

    fn habit(&self, _: usize) -> Option<Vec<usize>> {
        self.options.changed().then(|| {
            let mut ways = self.ways_on();
            ways.sort_unstable();
            ways
        })
    }

    fn fork(&self, _: u64) -> Option<Box<dyn Game>> {
        Some(Box::new(self.clone()))
    }
}

#[cfg(test)]
mod tests;
