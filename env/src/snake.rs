//! Snake: eat, grow and avoid collisions while other snakes do the same.
//!
//! After FastSnake (github.com/jim-dilkes/FastSnake at 9c68315), the game of the first author of MS-GRPO.
//! `docs/games/snake.md` describes the rules, the scripted player and the departures from the source.

mod board;
mod options;
mod players;
mod text;

use serde_json::Value;

use crate::options::{ListedView, Phrasing, presets};
use crate::picture::Cell;
use crate::rng::Stream;
use crate::{
    DeclaredOptions, Game, GameError, Kind, LEFT_RIGHT, Legend, Outcome, Planes, Scenario,
    UP_DOWN_LEFT_RIGHT, actions_for, check_actions, meant,
};
use board::{Food, SnakeBoard, SnakeEvent};
use options::{Hill, Opponent, SnakeOptions, usual_worth};

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Eat apples and grow on a board shared with another snake; walls and bodies kill.",
    options: SnakeOptions::LIST,
    variants: presets! {
        GameVariant of SnakeOptions;
        /// 10x10, five apples, one random enemy, 20 rounds: the author's game, and the defaults.
        "snake-standard": size = Some(10), apples = 5, enemies = 1, step_limit = 20;
        /// The standard game with poisonous apples, which cost a point each.
        "snake-poison-apple": apple_reward = -1.0;
        /// Three poisonous apples, and three bananas that give a point each.
        "snake-poison-apple-and-banana": apples = 3, apple_reward = -1.0, bananas = 3, banana_reward = 1.0;
        /// The standard game with three bananas in addition to the apples, a point each.
        "snake-banana": bananas = 3, banana_reward = 1.0;
        /// The standard game on a slope: apples roll down, and new ones appear at the top.
        "snake-downhill": hill = Hill::Down;
        /// The standard game against an enemy that moves towards the apples.
        "snake-greedy-enemy": opponent = Opponent::Greedy;
        /// Two agents on the standard board, and no other snake.
        "snake-duel": agents = 2, enemies = 0;
        /// The standard board without enemies.
        "snake-alone": enemies = 0;
        /// 6x6, two apples, one enemy: the game of the preset snake.
        "snake-small": size = Some(6), apples = 2, enemies = 1, step_limit = 20;
    },
    probes: presets! {
        SemanticProbe of SnakeOptions;
        /// Apples are poisonous and cost a point.
        "poison", Blatant: apple_reward = -1.0;
        /// Apples are poisonous, and bananas give the points.
        "bananas", Blatant: apples = 3, apple_reward = -1.0, bananas = 3, banana_reward = 1.0;
        /// The words left and right swap their meanings.
        "swapped", Plain: swapped = true;
        /// There are fires, and each costs a point.
        "fires", Plain: fires = 5, fire_reward = -1.0;
        /// Apples give two points.
        "double", Plain: apple_reward = 2.0;
        /// Apples give nothing but still make the snake longer.
        "dieting", Subtle: apple_reward = 0.0;
        /// Other signs stand for heads, bodies and apples.
        "symbols", Subtle: symbols = Phrasing::Other;
        /// The same rules in other words.
        "wording", Subtle: wording = Phrasing::Other;
    },
    configure: |options| Ok(Box::new(SnakeOptions::checked(options)?)),
};

const NAME: &str = "snake";

impl SnakeOptions {
    fn board(&self, scene: u64) -> SnakeBoard {
        let mut stream = Stream::new(scene, "snake scene");
        let (width, height) = self.sides();
        let mut board = SnakeBoard {
            width,
            height,
            snakes: Vec::new(),
            food: Vec::new(),
        };
        for food in Food::ALL {
            (0..self.count(food)).for_each(|_| board.put(food, None, &mut stream));
        }
        for _ in 0..self.snakes() {
            let cell = board.free_cell(None, &mut stream);
            board.snakes.push(cell.into_iter().collect());
        }
        board
    }
}

impl Scenario for SnakeOptions {
    fn name(&self) -> &str {
        NAME
    }

    fn rules(&self) -> String {
        text::rules(self)
    }

    fn actions(&self) -> &[String] {
        &*UP_DOWN_LEFT_RIGHT
    }

    fn agents(&self) -> usize {
        self.agents
    }

    fn start(&self, scene: u64, luck: u64) -> Result<Box<dyn Game>, GameError> {
        let (board, scores) = (self.board(scene), vec![0.0; self.agents]);
        let episode = SnakeEpisode::new(self.clone(), board, scores, luck);
        Ok(Box::new(episode))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        // In addition to its own move an apple can roll onto the head.
        let rolled = match self.hill {
            Hill::None => 0.0,
            _ if self.apples == 0 => 0.0,
            _ => self.apple_reward,
        };
        let eaten = self.kinds().into_iter().map(SnakeEvent::Ate);
        let mut rewards = vec![self.reward(SnakeEvent::Died(""))];
        for event in eaten.chain([SnakeEvent::Nothing]) {
            let reward = self.reward(event);
            rewards.extend([reward, reward + rolled]);
        }
        let low = rewards.iter().copied().fold(f64::INFINITY, f64::min);
        let high = rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some((low, high))
    }

    fn step_limit(&self) -> usize {
        self.step_limit
    }

    fn options(&self) -> Value {
        self.in_force(None)
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
    /// Why each agent died.
    deaths: Vec<Option<&'static str>>,
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
            deaths: vec![None; scores.len()],
            scores,
            enemies: Stream::new(luck, "snake enemies"),
            food: Stream::new(luck, "snake things"),
        }
    }

    fn over(&self) -> Vec<bool> {
        let alone = self.options.snakes() > 1 && self.board.living() <= 1;
        let agents = &self.board.snakes[..self.options.agents];
        agents
            .iter()
            .map(|snake| alone || snake.is_empty())
            .collect()
    }

    /// Puts missing food on the board. Counting it also covers food that found no free cell before.
    fn replenish(&mut self) {
        // Up and down are 0 and 1, left and right 2 and 3.
        let uphill = self.options.hill.way().map(|(way, _)| way ^ 1);
        for food in Food::ALL {
            let edge = uphill.filter(|_| food == Food::Apple);
            for _ in self.board.cells_of(food).len()..self.options.count(food) {
                self.board.put(food, edge, &mut self.food);
            }
        }
    }

    /// Draws the move of an enemy, if it lives.
    fn enemy(&mut self, who: usize) -> Option<usize> {
        let ways = match self.options.opponent {
            _ if self.board.snakes[who].is_empty() => return None,
            Opponent::Random => players::random(&self.board, who),
            Opponent::Greedy => {
                let worth = |food| self.options.worth(food);
                players::greedy(&self.board.seen_by(who), worth)
            }
        };
        Some(ways[self.enemies.below(ways.len())])
    }
}

impl Game for SnakeEpisode {
    fn observe(&self, agent: usize) -> Result<String, GameError> {
        let board = self.board.seen_by(agent);
        Ok(match self.options.view {
            ListedView::Board => text::board(&board, self.options.symbols),
            ListedView::Relative => text::relative(&board, &self.options),
            ListedView::Coordinates | ListedView::Full => text::listed(&board, &self.options),
        })
    }

    fn key(&self, agent: usize) -> Result<String, GameError> {
        Ok(text::key(&self.board.seen_by(agent)))
    }

    fn map(&self, agent: usize) -> Result<String, GameError> {
        let mut board = self.board.seen_by(agent);
        board.food.retain(|(_, food)| *food == Food::Apple);
        Ok(text::key(&board))
    }

    /// Own head, own body behind it, the others' heads, their bodies, and a plane for each kind of food in the game.
    fn planes(&self, agent: usize) -> Result<Option<Planes>, GameError> {
        let board = self.board.seen_by(agent);
        let kinds = self.options.kinds();
        let mut names = vec!["own head", "own body", "other head", "other body"];
        names.extend(kinds.iter().map(|&food| food.name()));
        let mut planes = Planes::new(names, board.height, board.width);
        let place = |(x, y): Cell| (board.height - 1 - y, x);
        for (who, snake) in board.snakes.iter().enumerate() {
            let first = if who == 0 { 0 } else { 2 };
            for (part, &cell) in snake.iter().enumerate() {
                planes.set(first + part.min(1), place(cell));
            }
        }
        for &(cell, food) in &board.food {
            let plane = kinds.iter().position(|kind| *kind == food);
            planes.set(4 + plane.expect("the options have all food"), place(cell));
        }
        planes.at = board.snakes[0].front().copied().map(place);
        Ok(Some(planes))
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        let before = self.over();
        check_actions(NAME, actions, &before, UP_DOWN_LEFT_RIGHT.len());
        if before.iter().all(|&over| over) {
            return Ok(vec![Outcome::AFTER_THE_END; before.len()]);
        }
        let swapped = self.options.swapped;
        let way = |action: &Option<usize>| Some(meant((*action)?, swapped, LEFT_RIGHT));
        let mut moves: Vec<Option<usize>> = actions.iter().map(way).collect();
        for who in actions.len()..self.board.snakes.len() {
            moves.push(self.enemy(who));
        }
        let events = self.board.advance(&moves);
        let eaters = match self.options.hill.way() {
            Some((way, _)) => self.board.roll(way),
            None => Vec::new(),
        };
        let mut outcomes = vec![Outcome::AFTER_THE_END; before.len()];
        for (agent, over) in self.over().into_iter().enumerate() {
            if before[agent] {
                continue;
            }
            if let SnakeEvent::Ate(food) = events[agent] {
                self.scores[agent] += self.options.worth(food);
            }
            let apples = eaters.iter().filter(|&&eater| eater == agent).count();
            let rolled = apples as f64 * self.options.worth(Food::Apple);
            self.scores[agent] += rolled;
            if let SnakeEvent::Died(reason) = events[agent] {
                self.deaths[agent] = Some(reason);
            }
            let reward = self.options.reward(events[agent]) + rolled;
            outcomes[agent] = Outcome { reward, over };
        }
        self.replenish();
        Ok(outcomes)
    }

    fn succeeded(&self, agent: usize) -> bool {
        let kinds = self.options.kinds();
        let worthwhile = kinds.iter().any(|&food| self.options.worth(food) > 0.0);
        let score = self.scores[agent];
        !self.board.snakes[agent].is_empty() && (score > 0.0 || score == 0.0 && !worthwhile)
    }

    fn ending(&self, agent: usize) -> Option<&'static str> {
        let won = || self.over()[agent].then_some("outlived all other snakes");
        self.deaths[agent].or_else(won)
    }

    fn best_actions(&self, agent: usize) -> Option<Vec<usize>> {
        let board = self.board.seen_by(agent);
        let ways = players::greedy(&board, |food| self.options.worth(food));
        Some(actions_for(ways, self.options.swapped, LEFT_RIGHT))
    }

    fn habit(&self, agent: usize) -> Option<Vec<usize>> {
        let by_habit = || players::greedy(&self.board.seen_by(agent), usual_worth);
        self.options.changed().then(by_habit)
    }

    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        let (board, scores) = (self.board.clone(), self.scores.clone());
        Some(Box::new(SnakeEpisode {
            deaths: self.deaths.clone(),
            ..SnakeEpisode::new(self.options.clone(), board, scores, luck)
        }))
    }
}

#[cfg(test)]
mod tests;
