//! Snake: eat, grow and avoid collisions while other snakes do the same.
//!
//! **Description.** A board of snakes and apples on which all snakes move at once, after FastSnake, the game that the
//! first author of MS-GRPO published (github.com/jim-dilkes/FastSnake at 9c68315). Agents play some of the snakes; the
//! others are enemies.
//!
//! **Agents.** Each agent has its own observations, rewards and end. It sees its own head as `1` and the other snakes
//! after it in the order agents, enemies. So rules and prompts are equal for all agents, and one policy can play every
//! seat. To an agent every other snake is an enemy.
//!
//! **Actions.** `up`, `down`, `left`, `right` move the head by one cell. A snake dies if that cell is off the board, if
//! another head moves there in the same round, or if any snake, itself included, occupied it before the round: a tail
//! counts although it moves away, and so does a cell that another head leaves. A snake of one cell can turn back.
//!
//! **Unreadable action.** The agent stays where it is with its whole body. The others move, food reappears, the round
//! counts and gives `step_reward`. A snake that runs into the standing snake dies. So an agent never dies in such a round.
//!
//! **Enemies.** `opponent = "random"`: an enemy draws its move evenly from those that keep it on the board and off its own
//! body (from length 3 it wrongly treats its tail as free), or from all four if there are none. It ignores other snakes.
//! `opponent = "greedy"`: luck draws one of the scripted player's moves.
//!
//! **Food.** Apples, bananas and fires have the rewards of the options. A snake that eats one grows by a cell. Eaten food
//! reappears on an empty cell, drawn evenly, after all snakes have moved. A dead snake leaves the board.
//!
//! **Hill.** With `hill` every apple rolls one cell in that direction after all snakes have moved, the farthest downhill
//! first, unless the wall, a body or other food is in the way. An apple that rolls onto a head is eaten by that snake,
//! which does not grow. New apples appear on free cells of the uphill edge, or anywhere if it has none.
//!
//! **Observation.** `view = "board"`: the rows from top to bottom, one character per cell with spaces between: `1` own
//! head, `2` to `9` enemy heads, `T` any body, `A` apple, `B` banana, `F` fire, `_` empty. `view = "full"` adds
//! coordinates, rewards and a key; only it shows whose body is whose. The key of a state has the same content in both
//! views.
//!
//! **Start.** Food, agents and enemies, in this order, on empty cells drawn evenly from the scene. Each snake has one
//! cell. Luck determines the enemies' moves and where food reappears.
//!
//! **Rewards.** Each round gives `step_reward`, and the reward of the food eaten or `death_reward`. The episode succeeds
//! if the agent is alive and its food was worth more than 0, or, if no food of the game is worth points, not less than 0.
//!
//! **End.** For an agent when it dies. For all agents when at most one snake lives, unless the game started with one. The
//! referee's step limit is `step_limit`.
//!
//! **Options.** See `options.rs`.
//!
//! **Habit.** In the usual instructions apples give a point and there is no other food. If other food has a worth, or
//! words are swapped, the habit is the scripted player's choice under the usual ones. A hill does not count.
//!
//! **Scripted player.** Greedy: among moves that do not kill it prefers those away from enemies' heads, then those onto
//! nothing that costs points, then those nearest to food worth points. It does not plan ahead.
//!
//! **Departures from FastSnake.** Drawn cells are always empty (there an apple can appear on a snake). Bananas and fires
//! reappear after all snakes have moved, like apples. `death_reward` is the whole cost of death (there a fixed -1 plus the
//! option). Without other snakes the game lasts until the agent dies (there one round). The game ends when all agents are
//! dead, even if two enemies live. The round limit is the referee's. A hill does not destroy apples at its bottom edge.
//! Greedy enemies and probes are ours.

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
