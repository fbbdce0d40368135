//! 2048: slide the tiles of a 4x4 board and merge equal ones until one is large enough.
//!
//! Gabriele Cirulli's game with TextArena's choice of targets.
//! `docs/games/2048.md` describes the rules, the scripted player and the departures from the source.

mod board;
mod options;
mod player;

use std::sync::LazyLock;

use serde_json::Value;

use crate::options::{Phrasing, View, probes, variants};
use crate::rng::Stream;
use crate::{Game, GameError, GameOptions, Kind, Legend, Outcome, Scenario, check_actions, sorted};
use board::TileBoard;
use options::{TilesGoal, TilesOptions};

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Slide tiles and merge equal ones until one is large enough.",
    options: TilesOptions::LIST,
    variants: variants! {
        TilesOptions;
        /// A tile of 32 within 25 moves.
        "2048-small": target = 32, step_limit = 25;
        /// A tile of 256 within 150 moves.
        "2048-medium": target = 256, step_limit = 150;
        /// A tile of 2048 within 1500 moves.
        "2048-standard": target = 2048, step_limit = 1500;
    },
    probes: probes! {
        TilesOptions;
        /// Tiles must stay low: each higher tile costs points.
        "low", Blatant: goal = TilesGoal::Low, target = 32;
        /// Each up costs a tenth of a point.
        "costly-up", Plain: up_cost = 0.1;
        /// The words left and right swap their meanings.
        "swapped", Plain: swapped = true;
        /// Tiles are letters.
        "symbols", Subtle: symbols = Phrasing::Other;
        /// The same rules in other words.
        "wording", Subtle: wording = Phrasing::Other;
    },
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
        let mut rules = String::from(options.wording.either(
            "Each move slides all tiles of the board that way; two equal tiles that meet merge into one",
            "Push the numbers of the square one way: they all go until they hit something, and two of a kind become one",
        ));
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
            rules += options
                .wording
                .either(" _ is empty.", " Empty places are _.");
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
