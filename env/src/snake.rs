//! Snake: eat, grow and avoid collisions while other snakes do the same.
//!
//! After FastSnake (github.com/jim-dilkes/FastSnake at 9c68315), the game of the first author of MS-GRPO.
//! `docs/games/snake.md` describes the rules, the scripted player and the departures from the source.

mod board;
mod named;
mod options;
mod players;
mod text;

use std::sync::LazyLock;

use serde_json::Value;

use crate::options::View;
use crate::picture::Cell;
use crate::rng::Stream;
use crate::{
    Game, GameError, GameOptions, Kind, Legend, Outcome, Planes, Scenario, check_actions, sorted,
};
use board::{Food, Snake, SnakeBoard, SnakeEvent};
use options::{Opponent, SnakeOptions, usual_worth};

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Eat apples and grow on a board shared with another snake; walls and bodies kill.",
    options: SnakeOptions::LIST,
    variants: named::VARIANTS,
    probes: named::PROBES,
    configure: |options| {
        Ok(Box::new(SnakeGame {
            options: SnakeOptions::checked(options)?,
        }))
    },
};

const NAME: &str = "snake";

static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["up", "down", "left", "right"].map(str::to_owned));

#[derive(Debug)]
struct SnakeGame {
    options: SnakeOptions,
}

impl SnakeGame {
    /// Returns the board at the start of a scene.
    fn board(&self, scene: u64) -> SnakeBoard {
        let mut stream = Stream::new(scene, "snake scene");
        let (width, height) = self.options.sides();
        let mut board = SnakeBoard {
            width,
            height,
            snakes: Vec::new(),
            food: Vec::new(),
        };
        for food in Food::ALL {
            (0..self.options.count(food)).for_each(|_| board.put(food, &mut stream));
        }
        for _ in 0..self.options.snakes() {
            let cell = board.free_cell(&mut stream);
            board.snakes.push(Snake(cell.into_iter().collect()));
        }
        board
    }
}

impl Scenario for SnakeGame {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        text::rules(&self.options)
    }

    fn actions(&self) -> &[String] {
        &*ACTIONS
    }

    fn agents(&self) -> usize {
        self.options.agents
    }

    fn start(&self, scene: u64, luck: u64) -> Result<Box<dyn Game>, GameError> {
        let scores = vec![0.0; self.options.agents];
        let board = self.board(scene);
        Ok(Box::new(SnakeEpisode::new(
            self.options.clone(),
            board,
            scores,
            luck,
        )))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        Some(self.options.bounds())
    }

    fn step_limit(&self) -> usize {
        self.options.step_limit
    }

    fn options(&self) -> Value {
        self.options.in_force()
    }

    fn legend(&self) -> Legend {
        text::role
    }
}

struct SnakeEpisode {
    options: SnakeOptions,
    board: SnakeBoard,
    /// The worth of all food that each agent has eaten.
    scores: Vec<f64>,
    /// Moves of enemies.
    enemies: Stream,
    /// Cells of new food.
    food: Stream,
}

impl SnakeEpisode {
    fn new(options: SnakeOptions, board: SnakeBoard, scores: Vec<f64>, luck: u64) -> SnakeEpisode {
        SnakeEpisode {
            options,
            board,
            scores,
            enemies: Stream::new(luck, "snake enemies"),
            food: Stream::new(luck, "snake things"),
        }
    }

    fn over(&self) -> Vec<bool> {
        let alone = self.options.snakes() > 1 && self.board.living() <= 1;
        let agents = &self.board.snakes[..self.options.agents];
        agents.iter().map(|snake| alone || !snake.alive()).collect()
    }

    /// Puts missing food on the board. Counting it also covers food that found no free cell before.
    fn replenish(&mut self) {
        let downhill = self.options.hill.way();
        for food in Food::ALL {
            let same = |(_, kind): &&(_, Food)| *kind == food;
            let there = self.board.food.iter().filter(same).count();
            for _ in there..self.options.count(food) {
                match downhill {
                    Some((way, _)) if food == Food::Apple => {
                        self.board.put_uphill(food, way, &mut self.food)
                    }
                    _ => self.board.put(food, &mut self.food),
                }
            }
        }
    }

    /// Returns the move of an enemy, if it lives.
    fn enemy(&mut self, who: usize) -> Option<usize> {
        let (board, options) = (&self.board, &self.options);
        match options.opponent {
            Opponent::Random => players::enemy(board, who, &mut self.enemies),
            Opponent::Greedy => {
                let worth = |food| options.worth(food);
                players::greedy_enemy(board, who, worth, &mut self.enemies)
            }
        }
    }
}

impl Game for SnakeEpisode {
    fn observe(&self, agent: usize) -> Result<String, GameError> {
        let board = self.board.seen_by(agent);
        Ok(match self.options.view {
            View::Board => text::board(&board, self.options.symbols),
            View::Full => text::full(&board, &self.options),
        })
    }

    fn key(&self, agent: usize) -> Result<String, GameError> {
        Ok(text::key(&self.board.seen_by(agent)))
    }

    /// Own head, own body behind it, the others' heads, their bodies, and a plane for each kind of food in the game.
    fn planes(&self, agent: usize) -> Result<Option<Planes>, GameError> {
        let board = self.board.seen_by(agent);
        let kinds = self.options.kinds();
        let mut names = vec!["own head", "own body", "other head", "other body"];
        names.extend(kinds.iter().map(|&food| text::name(food)));
        let mut planes = Planes::new(names, board.height, board.width);
        let place = |(x, y): Cell| (board.height - 1 - y, x);
        for (who, snake) in board.snakes.iter().enumerate() {
            let first = if who == 0 { 0 } else { 2 };
            for (part, &cell) in snake.0.iter().enumerate() {
                planes.set(first + part.min(1), place(cell));
            }
        }
        for &(cell, food) in &board.food {
            let plane = kinds.iter().position(|kind| *kind == food);
            planes.set(4 + plane.expect("the options have all food"), place(cell));
        }
        planes.at = board.snakes[0].head().map(place);
        Ok(Some(planes))
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        let before = self.over();
        check_actions(NAME, actions, &before, ACTIONS.len());
        if before.iter().all(|&over| over) {
            return Ok(vec![Outcome::AFTER_THE_END; before.len()]);
        }
        let meant = |action: &Option<usize>| action.map(|action| self.options.meant(action));
        let mut moves: Vec<Option<usize>> = actions.iter().map(meant).collect();
        for who in actions.len()..self.board.snakes.len() {
            moves.push(self.enemy(who));
        }
        let events = self.board.advance(&moves);
        let eaters = match self.options.hill.way() {
            Some((way, _)) => self.board.roll(way),
            None => Vec::new(),
        };
        let rolled = |agent| {
            let apples = eaters.iter().filter(|&&eater| eater == agent).count();
            apples as f64 * self.options.worth(Food::Apple)
        };
        for (agent, score) in self.scores.iter_mut().enumerate() {
            if let SnakeEvent::Ate(food) = events[agent] {
                *score += self.options.worth(food);
            }
            *score += rolled(agent);
        }
        let rewards: Vec<f64> = (0..before.len())
            .map(|agent| self.options.reward(events[agent]) + rolled(agent))
            .collect();
        self.replenish();
        let outcome = |agent: usize, over| {
            if before[agent] {
                return Outcome::AFTER_THE_END;
            }
            let reward = rewards[agent];
            Outcome { reward, over }
        };
        Ok((0..)
            .zip(self.over())
            .map(|(agent, over)| outcome(agent, over))
            .collect())
    }

    fn succeeded(&self, agent: usize) -> bool {
        let kinds = self.options.kinds();
        let worthwhile = kinds.iter().any(|&food| self.options.worth(food) > 0.0);
        let score = self.scores[agent];
        self.board.snakes[agent].alive()
            && if worthwhile {
                score > 0.0
            } else {
                score >= 0.0
            }
    }

    fn best_actions(&self, agent: usize) -> Option<Vec<usize>> {
        let board = self.board.seen_by(agent);
        let ways = players::greedy(&board, |food| self.options.worth(food));
        Some(sorted(ways, |way| self.options.meant(way)))
    }

    fn habit(&self, agent: usize) -> Option<Vec<usize>> {
        let by_habit = || players::greedy(&self.board.seen_by(agent), usual_worth);
        self.options.changed().then(by_habit)
    }

    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        Some(Box::new(SnakeEpisode::new(
            self.options.clone(),
            self.board.clone(),
            self.scores.clone(),
            luck,
        )))
    }
}

#[cfg(test)]
mod tests;
