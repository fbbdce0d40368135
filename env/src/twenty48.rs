//! 2048: slide the tiles of a 4x4 board and merge equal ones until one is large enough.
//!
//! **Description.** Gabriele Cirulli's game with TextArena's choice of targets.
//!
//! **Actions.** `up`, `down`, `left`, `right` slide all tiles in that direction as far as they go. Two equal tiles that
//! meet merge into one of twice the number, the pair nearest to the wall first, and no tile merges twice in a move. If
//! anything moved, a new tile appears on an empty cell, drawn evenly: 2 with probability 9/10, otherwise 4. A move that
//! moves nothing and an unreadable action add no tile, but the step counts.
//!
//! **Observation.** `view = "board"`: the rows from top to bottom, each tile as its number, `_` for an empty cell, with
//! spaces between. `view = "full"` adds the size, the highest tile and the number of empty cells. With `symbols = "other"`
//! tiles are letters: `A` for 2, `B` for 4, and so on. The key of a state is its sixteen tiles, in both views.
//!
//! **Start.** Two tiles, drawn as above from the scene. Luck draws the later ones.
//!
//! **Rewards.** Each merge that makes a tile higher than all before gives one share; the doublings from 2 to `target` add
//! up to 1. So the return is at most 1, and even a policy that never reaches the target is rewarded on the way. (The usual
//! score has no bound that fits all targets, and TextArena rewards only the end.) Each `up` costs `up_cost`. The episode
//! succeeds with a tile of `target`; with `goal = "low"`, where shares are costs, without one.
//!
//! **End.** When the target is reached or no move would move anything. The referee's step limit is `step_limit`.
//!
//! **Options.** See `options.rs`.
//!
//! **Scripted player.** Expectimax two moves deep over every cell where a 2 can appear; it prefers high tiles along a path
//! that winds from a corner. If `up` has a cost, it moves up only if nothing else moves. To keep tiles low it prefers moves
//! that move nothing, then merges of the lowest tiles. It is strong but not optimal. The optimum is not known.
//!
//! **Departures from TextArena.** The rewards (above). A move that moves nothing costs a step and is not an invalid reply.
//! The step limit is the referee's.

mod board;
mod options;
mod player;

use std::sync::LazyLock;

use serde_json::Value;

use crate::options::{Phrasing, View, set};
use crate::rng::Stream;
use crate::{
    Game, GameError, GameOptions, GameVariant, Kind, Legend, Outcome, Scenario, SemanticProbe,
    Subtlety, check_actions, sorted,
};
use board::TileBoard;
use options::{TilesGoal, TilesOptions};

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Slide tiles and merge equal ones until one is large enough.",
    options: TilesOptions::LIST,
    variants: &[
        GameVariant {
            name: "2048-small",
            summary: "A tile of 32 within 25 moves.",
            set: set!(TilesOptions, target = 32, step_limit = 25),
        },
        GameVariant {
            name: "2048-medium",
            summary: "A tile of 256 within 150 moves.",
            set: set!(TilesOptions, target = 256, step_limit = 150),
        },
        GameVariant {
            name: "2048-standard",
            summary: "A tile of 2048 within 1500 moves.",
            set: set!(TilesOptions, target = 2048, step_limit = 1500),
        },
    ],
    probes: &[
        SemanticProbe {
            name: "low",
            summary: "Tiles are to stay low: what brought points costs them.",
            subtlety: Subtlety::Blatant,
            set: set!(TilesOptions, goal = TilesGoal::Low, target = 32),
        },
        SemanticProbe {
            name: "costly-up",
            summary: "Each up costs a tenth of a point.",
            subtlety: Subtlety::Plain,
            set: set!(TilesOptions, up_cost = 0.1),
        },
        SemanticProbe {
            name: "swapped",
            summary: "The words left and right have changed their meaning.",
            subtlety: Subtlety::Plain,
            set: set!(TilesOptions, swapped = true),
        },
        SemanticProbe {
            name: "symbols",
            summary: "Tiles are letters.",
            subtlety: Subtlety::Subtle,
            set: set!(TilesOptions, symbols = Phrasing::Other),
        },
        SemanticProbe {
            name: "wording",
            summary: "The same rules in other words.",
            subtlety: Subtlety::Subtle,
            set: set!(TilesOptions, wording = Phrasing::Other),
        },
    ],
    configure: |options| {
        Ok(Box::new(Tiles {
            options: TilesOptions::checked(options)?,
        }))
    },
};

const NAME: &str = "2048";

static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["up", "down", "left", "right"].map(str::to_owned));

#[derive(Debug)]
struct Tiles {
    options: TilesOptions,
}

impl Scenario for Tiles {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        let options = &self.options;
        let (target, letters) = (options.tile(options.level()), options.letters());
        let usual = options.wording == Phrasing::Usual;
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
            (TilesGoal::High, true) => format!(" Make a tile of {target}."),
            (TilesGoal::High, false) => format!(" Get to {target}."),
            (TilesGoal::Low, true) => {
                format!(" Keep the tiles low: each higher tile costs points, and {target} loses.")
            }
            (TilesGoal::Low, false) => {
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
        let mut board = TileBoard::default();
        (0..2).for_each(|_| board.spawn(&mut stream));
        Ok(Box::new(TilesEpisode {
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
        self.options.in_force()
    }

    fn legend(&self) -> Legend {
        board::role
    }
}

#[derive(Clone)]
struct TilesEpisode {
    options: TilesOptions,
    board: TileBoard,
    /// New tiles and their cells.
    luck: Stream,
}

impl TilesEpisode {
    fn reached(&self) -> bool {
        self.board.highest() >= self.options.level()
    }

    fn over(&self) -> bool {
        self.reached() || self.board.stuck()
    }
}

impl Game for TilesEpisode {
    fn observe(&self, _: usize) -> Result<String, GameError> {
        let picture = self.board.picture(|level| self.options.tile(level));
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
        Ok(self.board.key())
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        check_actions(NAME, actions, &[self.over()], ACTIONS.len());
        if self.over() {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        let mut reward = 0.0;
        if let Some(action) = actions[0] {
            let way = self.options.meant(action);
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
            TilesGoal::High => self.reached(),
            TilesGoal::Low => !self.reached(),
        }
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        let options = &self.options;
        let ways = match options.goal {
            TilesGoal::High => player::high(&self.board, options.up_cost > 0.0),
            TilesGoal::Low => player::low(&self.board, options.up_cost > 0.0),
        };
        Some(sorted(ways, |way| options.meant(way)))
    }

    fn habit(&self, _: usize) -> Option<Vec<usize>> {
        self.options
            .changed()
            .then(|| player::high(&self.board, false))
    }

    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        let luck = Stream::new(luck, "2048 tiles");
        Some(Box::new(TilesEpisode {
            luck,
            ..self.clone()
        }))
    }
}

#[cfg(test)]
mod tests;
