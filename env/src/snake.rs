//! Snake: eat, grow, and do not run into anything, while another snake does the same.
//!
//! **Description.** A board of snakes and apples where all snakes move at once, after FastSnake, the game that the first
//! author of MS-GRPO published (github.com/jim-dilkes/FastSnake at 9c68315). The agent is snake 1.
//!
//! **Actions.** `up`, `down`, `left`, `right`: the head goes one cell that way. The agent dies if that cell is off the
//! board, if another head moves there in the same round, or if any snake, itself included, was there before the round:
//! its own tail counts although it moves away, and so does the cell that an enemy's head is leaving. A snake of one cell
//! can turn back, a longer one dies of it.
//!
//! **An action that could not be read** leaves the agent where it is, with its whole body; the enemies move, things
//! reappear, the round counts and brings `step_reward`. A standing snake is a wall: an enemy that runs into any cell of
//! it dies, the agent is unhurt and wins nothing by it, and if that was the last enemy the game is over. So the agent
//! never dies in such a round.
//!
//! **Enemies.** Each moves evenly among the moves that keep it on the board and off its own body (from length 3 on it
//! takes its tail for free), or among all four if there are none. They do not look at other snakes.
//!
//! **Things.** Apples, bananas and fires are each worth what the options say. A snake that eats one grows by a cell. What
//! was eaten reappears on an empty cell, evenly drawn, after all have moved. A dead snake leaves the board.
//!
//! **Observation.** `view = "board"`: the rows from top to bottom, one character a cell with spaces between: `1` own
//! head, `2` (to `9`) enemy head, `T` any body, `A` apple, `B` banana, `F` fire, `_` empty. `view = "full"` puts
//! coordinates, what things are worth and a key above the board; only it tells whose body is whose.
//!
//! **Start.** Things first, then the agent, then the enemies, each of one cell, on empty cells drawn evenly from the
//! scene. Luck moves the enemies and says where things reappear.
//!
//! **Rewards.** Each round `step_reward`, and what the agent ate, or `death_reward` if it died. Success is to be alive
//! and to have eaten things worth more than 0 in all; if nothing in the game is worth points, to have lost none.
//!
//! **End.** When the agent dies, or when it is the only one left of a game with enemies. The referee's step limit is
//! `step_limit` unless it is told otherwise.
//!
//! **Options.** `size` = 10, or `width` and `height` (each as `size` unless given); `enemies` = 1 (0 to 8); `apples` = 5;
//! `bananas` = 0; `fires` = 0; `apple_reward` = 1 (-1 makes poison apples, and the rules say so); `banana_reward` = 1;
//! `fire_reward` = -1; `death_reward` = -2; `step_reward` = -0.01; `step_limit` = 20; `view` = "board".
//!
//! **Scripted player.** Greedy: of the moves that do not kill, rather those not next to an enemy's head, then rather
//! those onto nothing that costs points, it takes those nearest to something worth points. It does not plan ahead.
//!
//! **Departures from FastSnake.** Cells drawn are truly empty (there a slip of coordinates can put a snake on an apple).
//! Bananas and fires reappear after all have moved, like apples, not at once. `death_reward` is the whole cost of death
//! (there a fixed -1 plus the option). Without enemies the game lasts until the agent dies (there one round). When the
//! agent dies the episode ends, even if two enemies live on. The round limit is the referee's and truncates. There are
//! no hills.

mod board;
mod options;
mod players;
mod text;

use serde_json::Value;

use crate::options::View;
use crate::rng::Stream;
use crate::{Game, Kind, Scenario, Turn};
use board::{Board, Event, Snake, Thing};
use options::Options;

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Eat apples and grow on a board shared with another snake; walls and bodies kill.",
    options: crate::options::names::<Options>,
    configure: |options| {
        Ok(Box::new(SnakeGame {
            options: Options::checked(options)?,
        }))
    },
};

const NAME: &str = "snake";

const ACTIONS: [&str; 4] = ["up", "down", "left", "right"];

#[derive(Debug)]
struct SnakeGame {
    options: Options,
}

impl Scenario for SnakeGame {
    fn rules(&self) -> String {
        let options = &self.options;
        let mut rules = String::from("You are snake 1.");
        if options.enemies > 0 {
            rules += " All snakes move at once.";
        }
        if options.view == View::Board {
            rules += &format!(" Key: {}.", text::key(options.enemies, &options.kinds()));
        }
        for thing in options.kinds() {
            let (_, name) = text::names(thing);
            let worth = options.worth(thing);
            let poison = if worth < 0.0 && thing != Thing::Fire {
                "is poisonous, "
            } else {
                ""
            };
            rules += &format!(
                " Each {name} {poison}{} and makes you longer.",
                text::worth_in_words(worth)
            );
        }
        rules
            + " You die if you hit a wall, a snake or your own body. Get as many points as you can."
    }

    fn actions(&self) -> &'static [&'static str] {
        &ACTIONS
    }

    fn start(&self, scene: u64, luck: u64) -> Box<dyn Game> {
        let mut stream = Stream::new(scene, "snake scene");
        let (width, height) = self.options.sides();
        let mut board = Board {
            width,
            height,
            snakes: Vec::new(),
            things: Vec::new(),
        };
        for thing in Thing::ALL {
            (0..self.options.count(thing)).for_each(|_| board.put(thing, &mut stream));
        }
        for _ in 0..=self.options.enemies {
            let cell = board.free_cell(&mut stream);
            board.snakes.push(Snake(cell.into_iter().collect()));
        }
        Box::new(Episode {
            options: self.options.clone(),
            board,
            score: 0.0,
            enemies: Stream::new(luck, "snake enemies"),
            things: Stream::new(luck, "snake things"),
        })
    }

    fn reward_bounds(&self) -> (f64, f64) {
        let eaten = self.options.kinds().into_iter().map(Event::Ate);
        let rewards = eaten
            .chain([Event::Nothing, Event::Died])
            .map(|event| self.options.reward(event));
        rewards.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), reward| {
            (low.min(reward), high.max(reward))
        })
    }

    fn step_limit(&self) -> usize {
        self.options.step_limit
    }

    fn options(&self) -> Value {
        crate::options::in_force(&self.options)
    }
}

struct Episode {
    options: Options,
    board: Board,
    /// The worth of all that the agent has eaten.
    score: f64,
    /// How the enemies move.
    enemies: Stream,
    /// Where things reappear.
    things: Stream,
}

impl Episode {
    fn alive(&self) -> bool {
        self.board.snakes[0].alive()
    }

    fn over(&self) -> bool {
        !self.alive() || (self.options.enemies > 0 && self.board.living() == 1)
    }
}

impl Game for Episode {
    fn observe(&self) -> String {
        match self.options.view {
            View::Board => text::picture(&self.board),
            View::Full => text::told(&self.board, &self.options.kinds(), |thing| {
                self.options.worth(thing)
            }),
        }
    }

    fn play(&mut self, action: Option<usize>) -> Turn {
        if self.over() {
            return Turn {
                reward: 0.0,
                over: true,
            };
        }
        if let Some(action) = action {
            assert!(
                action < ACTIONS.len(),
                "{NAME}: there is no action {action}, only {}",
                ACTIONS.len()
            );
        }
        let mut moves = vec![action];
        for who in 1..self.board.snakes.len() {
            moves.push(players::enemy(&self.board, who, &mut self.enemies));
        }
        let events = self.board.advance(&moves);
        if let Event::Ate(thing) = events[0] {
            self.score += self.options.worth(thing);
        }
        // Counting what is missing, rather than what was eaten, also makes up for a board that was full before.
        for thing in Thing::ALL {
            let there = self
                .board
                .things
                .iter()
                .filter(|(_, kind)| *kind == thing)
                .count();
            (there..self.options.count(thing))
                .for_each(|_| self.board.put(thing, &mut self.things));
        }
        Turn {
            reward: self.options.reward(events[0]),
            over: self.over(),
        }
    }

    fn succeeded(&self) -> bool {
        let worthwhile = self
            .options
            .kinds()
            .into_iter()
            .any(|thing| self.options.worth(thing) > 0.0);
        self.alive()
            && if worthwhile {
                self.score > 0.0
            } else {
                self.score >= 0.0
            }
    }

    fn best_actions(&self) -> Vec<usize> {
        players::greedy(&self.board, |thing| self.options.worth(thing))
    }
}

#[cfg(test)]
mod tests;
