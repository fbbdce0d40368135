//! 2048: slide the tiles of a 4x4 board and merge equal ones until one is large enough.
//!
//! Gabriele Cirulli's game with TextArena's choice of targets.
//! `docs/games/2048.md` describes the rules, the scripted player and the departures from the source.

mod board;
mod options;
mod player;

use serde_json::Value;

use crate::options::{Phrasing, View, presets};
use crate::rng::Stream;
use crate::{
    DeclaredOptions, Game, GameError, Kind, LEFT_RIGHT, Legend, Outcome, Scenario,
    UP_DOWN_LEFT_RIGHT, actions_for, check_actions, meant,
};
use board::TileBoard;
use options::{TilesGoal, TilesOptions};

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Slide tiles and merge equal ones until one is large enough.",
    options: TilesOptions::LIST,
    variants: presets! {
        GameVariant of TilesOptions;
        /// A tile of 32 within 25 moves.
        "2048-small": target = 32, step_limit = 25;
        /// A tile of 256 within 150 moves.
        "2048-medium": target = 256, step_limit = 150;
        /// A tile of 2048 within 1500 moves.
        "2048-standard": target = 2048, step_limit = 1500;
    },
    probes: presets! {
        SemanticProbe of TilesOptions;
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
    configure: |options| Ok(Box::new(TilesOptions::checked(options)?)),
};

const NAME: &str = "2048";

impl Scenario for TilesOptions {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        let target = self.tile(self.level());
        let usual = self.wording == Phrasing::Usual;
        let mut rules = String::from(self.wording.either(
            "Each move slides all tiles of the board that way; two equal tiles that meet merge into one",
            "Push the numbers of the square one way: they all go until they hit something, and two of a kind become one",
        ));
        rules += match (usual, self.symbols) {
            (true, Phrasing::Usual) => " of twice the number.",
            (true, Phrasing::Other) => " of the next letter.",
            (false, Phrasing::Usual) => ", doubled.",
            (false, Phrasing::Other) => ", one letter on.",
        };
        let [two, four] = [self.tile(1), self.tile(2)];
        rules += &if usual {
            format!(" Then a {two} or {four} appears. If nothing moves, none does.")
        } else {
            format!(" A new {two} or {four} follows. Where nothing gives, none does.")
        };
        if self.view == View::Board {
            rules += self.wording.either(" _ is empty.", " Empty places are _.");
        }
        if self.swapped {
            rules += " left and right are swapped: left slides to the right, right to the left.";
        }
        if self.up_cost > 0.0 {
            rules += &format!(" Each up costs {} points.", self.up_cost);
        }
        rules += &match (self.goal, usual) {
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
        &*UP_DOWN_LEFT_RIGHT
    }

    fn start(&self, scene: u64, luck: u64) -> Result<Box<dyn Game>, GameError> {
        let mut stream = Stream::new(scene, "2048 scene");
        let mut board = TileBoard::default();
        (0..2).for_each(|_| board.spawn(&mut stream));
        Ok(Box::new(TilesEpisode {
            options: self.clone(),
            board,
            luck: Stream::new(luck, "2048 tiles"),
        }))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        let share = self.share();
        let (low, high) = (share.min(0.0), share.max(0.0));
        Some((low - self.up_cost, high))
    }

    fn step_limit(&self) -> usize {
        self.step_limit
    }

    fn options(&self) -> Value {
        self.in_force(None)
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
        check_actions(NAME, actions, &[self.over()], UP_DOWN_LEFT_RIGHT.len());
        if self.over() {
            return Ok(vec![Outcome::AFTER_THE_END]);
        }
        let mut reward = 0.0;
        if let Some(action) = actions[0] {
            let way = meant(action, self.options.swapped, LEFT_RIGHT);
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
        let over = self.over();
        Ok(vec![Outcome { reward, over }])
    }

    fn succeeded(&self, _: usize) -> bool {
        match self.options.goal {
            TilesGoal::High => self.reached(),
            TilesGoal::Low => !self.reached(),
        }
    }

    fn ending(&self, _: usize) -> Option<&'static str> {
        match self.reached() {
            true => Some("made the tile of the goal"),
            false => self.board.stuck().then_some("no move is possible"),
        }
    }

    fn best_actions(&self, _: usize) -> Option<Vec<usize>> {
        let options = &self.options;
        let ways = match options.goal {
            TilesGoal::High => player::high(&self.board, options.up_cost > 0.0),
            TilesGoal::Low => player::low(&self.board, options.up_cost > 0.0),
        };
        Some(actions_for(ways, options.swapped, LEFT_RIGHT))
    }

    fn habit(&self, _: usize) -> Option<Vec<usize>> {
        self.options
            .changed()
            .then(|| player::high(&self.board, false))
    }

    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        let mut fork = self.clone();
        fork.luck = Stream::new(luck, "2048 tiles");
        Some(Box::new(fork))
    }
}

#[cfg(test)]
mod tests;
