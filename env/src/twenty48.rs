//! 2048: slide the tiles of a 4x4 board and merge equal ones until one is large enough.
//!
//! **Description.** After Gabriele Cirulli's game, with TextArena's choice of targets.
//!
//! **Actions.** `up`, `down`, `left`, `right`: all tiles slide that way as far as they go. Two equal tiles that meet
//! merge into one of twice the worth, the pair nearest to the wall first, and no tile merges twice in a move. If
//! anything moved, a new tile appears on an empty cell, evenly drawn: 2 with a chance of 9/10, else 4. A move that moves
//! nothing brings no tile, but the step counts. So it does for an action that could not be read, which moves nothing.
//!
//! **Observation.** `view = "board"`: the rows from top to bottom, each tile as its number, `_` for an empty cell, with
//! spaces between. `view = "full"` puts the size, the highest tile and the number of empty cells above it. With
//! `symbols = "other"` tiles are letters: `A` for 2, `B` for 4, and so on. The key of a state is its sixteen tiles, in
//! any view.
//!
//! **Start.** Two tiles, each drawn as above from the scene. Luck draws those that follow.
//!
//! **Rewards.** Each time a merge makes a tile higher than all before: one share, where the doublings from 2 to `target`
//! are 1 together. So the return is at most 1, and a learner hears of every doubling on the way, also with a target that
//! it never reaches. (The game's usual score has no bound that fits all targets, and TextArena pays at the end only.)
//! Each `up` costs `up_cost`. Success is a tile of `target`; with `goal = "low"`, where a share is a loss, that there is
//! none.
//!
//! **End.** When the target is reached, or no move would move anything. The referee's step limit is `step_limit` unless
//! it is told otherwise.
//!
//! **Options.** `target` = 64, a power of two from 32 to 16384; `goal` = "high" or "low"; `up_cost` = 0; `swapped` =
//! false: the words left and right have changed their meaning; `wording` and `symbols` = "usual" or "other";
//! `step_limit` = 50; `view` = "board".
//!
//! **Scripted player.** Expectimax two moves deep, over every place where a 2 may appear; it likes high tiles along a
//! path that winds from a corner. It goes up only if nothing else moves, where up costs. Where tiles are to stay low it
//! rather moves nothing, and merges the lowest tiles if it must. It is good, and not optimal. The optimum is not known.
//!
//! **Departures from TextArena.** The rewards (above). A move that moves nothing costs the step and is not an invalid
//! reply. The step limit is the referee's.

mod board;
mod options;
mod player;

use std::sync::LazyLock;

use serde_json::Value;

use crate::options::{Put, View};
use crate::rng::Stream;
use crate::{Game, GameError, Kind, Outcome, Probe, Scenario, Subtlety, Variant, check_actions};
use board::Board;
use options::{Goal, Options};

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Slide tiles and merge equal ones until one is large enough.",
    options: options::OPTIONS,
    variants: &[
        Variant {
            name: "2048-small",
            summary: "A tile of 32 within 25 moves.",
            options: r#"{"target": 32, "step_limit": 25}"#,
        },
        Variant {
            name: "2048-medium",
            summary: "A tile of 256 within 150 moves.",
            options: r#"{"target": 256, "step_limit": 150}"#,
        },
        Variant {
            name: "2048-standard",
            summary: "A tile of 2048 within 1500 moves.",
            options: r#"{"target": 2048, "step_limit": 1500}"#,
        },
    ],
    probes: &[
        Probe {
            name: "low",
            summary: "Tiles are to stay low: what brought points costs them.",
            subtlety: Subtlety::Blatant,
            options: r#"{"goal": "low", "target": 32}"#,
        },
        Probe {
            name: "costly-up",
            summary: "Each up costs a tenth of a point.",
            subtlety: Subtlety::Plain,
            options: r#"{"up_cost": 0.1}"#,
        },
        Probe {
            name: "swapped",
            summary: "The words left and right have changed their meaning.",
            subtlety: Subtlety::Plain,
            options: r#"{"swapped": true}"#,
        },
        Probe {
            name: "symbols",
            summary: "Tiles are letters.",
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
    configure: |options| {
        Ok(Box::new(Tiles {
            options: Options::checked(options)?,
        }))
    },
};

const NAME: &str = "2048";

static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["up", "down", "left", "right"].map(str::to_owned));

#[derive(Debug)]
struct Tiles {
    options: Options,
}

impl Scenario for Tiles {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        let options = &self.options;
        let (target, letters) = (options.tile(options.level()), options.letters());
        let usual = options.wording == Put::Usual;
        let mut rules = String::from(if usual {
            "Each move slides all tiles of the board that way; two equal tiles that meet merge into one"
        } else {
            "Push the numbers of the square one way: they all go until they hit something, and two of a kind become one"
        });
        rules += match (usual, letters) {
            (true, false) => " of twice the number.",
            (true, true) => " of the next letter.",
            (false, false) => ", doubled.",
            (false, true) => ", one letter on.",
        };
        let [two, four] = [options.tile(1), options.tile(2)];
        rules += &if usual {
            format!(" Then a {two} or {four} appears. If nothing moves, none does.")
        } else {
            format!(" A new {two} or {four} follows. Where nothing gives, none does.")
        };
        if options.view == View::Board {
            rules += if usual {
                " _ is empty."
            } else {
                " Empty places are _."
            };
        }
        if options.swapped {
            rules += " left and right are swapped: left slides to the right, right to the left.";
        }
        if options.up_cost > 0.0 {
            rules += &format!(" Each up costs {} points.", options.up_cost);
        }
        rules += &match (options.goal, usual) {
            (Goal::High, true) => format!(" Make a tile of {target}."),
            (Goal::High, false) => format!(" Get to {target}."),
            (Goal::Low, true) => {
                format!(" Keep the tiles low: each higher tile costs points, and {target} loses.")
            }
            (Goal::Low, false) => {
                format!(" Stay low: whatever is higher costs points, and {target} loses.")
            }
        };
        rules
    }

    fn actions(&self) -> &[String] {
        &*ACTIONS
    }

    fn start(&self, scene: u64, luck: u64) -> Result<Box<dyn Game>, GameError> {
        let mut stream = Stream::new(scene, "2048 scene");
        let mut board = Board::default();
        (0..2).for_each(|_| board.spawn(&mut stream));
        Ok(Box::new(Episode {
            options: self.options.clone(),
            board,
            luck: Stream::new(luck, "2048 tiles"),
        }))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        let share = self.options.share();
        let (low, high) = (share.min(0.0), share.max(0.0));
        Some((low - self.options.up_cost, high))
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
    board: Board,
    /// Which tiles appear, and where.
    luck: Stream,
}

impl Episode {
    fn reached(&self) -> bool {
        self.board.highest() >= self.options.level()
    }

    fn over(&self) -> bool {
        self.reached() || self.board.stuck()
    }
}

impl Game for Episode {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        let picture = self.board.told(|level| self.options.tile(level));
        Ok(match self.options.view {
            View::Board => picture,
            View::Full => format!(
                "The board is 4x4. The highest tile is {}. {} cells are empty.\nKey: _ empty\nState:\n{picture}",
                self.options.tile(self.board.highest()),
                self.board.empty().count()
            ),
        })
    }

    fn key(&self, _: usize) -> Result<String, GameError> {
        Ok(self.board.in_short())
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        check_actions(NAME, actions, &[self.over()], ACTIONS.len());
        if self.over() {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        let mut reward = 0.0;
        if let Some(action) = actions[0] {
            let way = self.options.way(action);
            let before = self.board.highest();
            if way == board::UP {
                reward -= self.options.up_cost;
            }
            if self.board.slide(way) {
                if self.board.highest() > before {
                    reward += self.options.share();
                }
                self.board.spawn(&mut self.luck);
            }
        }
        Ok(vec![Outcome {
            reward,
            over: self.over(),
        }])
    }

    fn succeeded(&self, _: usize) -> bool {
        match self.options.goal {
            Goal::High => self.reached(),
            Goal::Low => !self.reached(),
        }
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        let options = &self.options;
        let ways = match options.goal {
            Goal::High => player::high(&self.board, options.up_cost > 0.0),
            Goal::Low => player::low(&self.board, options.up_cost > 0.0),
        };
        let mut actions: Vec<usize> = ways.into_iter().map(|way| options.way(way)).collect();
        actions.sort_unstable();
        Some(actions)
    }

    fn habit(&self, _: usize) -> Option<Vec<usize>> {
        self.options
            .changed()
            .then(|| player::high(&self.board, false))
    }

    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        let luck = Stream::new(luck, "2048 tiles");
        Some(Box::new(Episode {
            luck,
            ..self.clone()
        }))
    }
}

#[cfg(test)]
mod tests;
