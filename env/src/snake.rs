//! Snake: eat, grow, and do not run into anything, while other snakes do the same.
//!
//! **Description.** A board of snakes and apples where all snakes move at once, after FastSnake, the game that the first
//! author of MS-GRPO published (github.com/jim-dilkes/FastSnake at 9c68315). Some snakes are agents, the others enemies.
//!
//! **Agents.** `agents` of them, one by default, each with observations, rewards and an end of its own. Each sees the
//! board from its own side: its head is always `1`, and the others follow in the order agents, enemies. So rules and
//! prompts are the same for all, and one policy can play every seat. To an agent every other snake is an enemy.
//!
//! **Actions.** `up`, `down`, `left`, `right`: the head goes one cell that way. A snake dies if that cell is off the
//! board, if another head moves there in the same round, or if any snake, itself included, was there before the round:
//! its own tail counts although it moves away, and so does the cell that another head is leaving. A snake of one cell
//! can turn back, a longer one dies of it.
//!
//! **An action that could not be read** leaves the agent where it is, with its whole body; the others move, things
//! reappear, the round counts and brings `step_reward`. A standing snake is a wall: a snake that runs into any cell of
//! it dies, the agent is unhurt and wins nothing by it, and if that was the last other snake the game is over. So an
//! agent never dies in such a round.
//!
//! **Enemies.** `opponent = "random"`: each moves evenly among the moves that keep it on the board and off its own body (from length 3 on it
//! takes its tail for free), or among all four if there are none. They do not look at other snakes. `opponent = "greedy"`:
//! each makes one of the moves of the scripted player, by luck.
//!
//! **Things.** Apples, bananas and fires are each worth what the options say. A snake that eats one grows by a cell. What
//! was eaten reappears on an empty cell, evenly drawn, after all have moved. A dead snake leaves the board.
//!
//! **Hill.** With `hill` set, after all have moved every apple rolls one cell that way, those farthest down first, unless
//! the wall, a body or another thing is there; apples at the bottom stay. Rolled onto a head, an apple is eaten by that
//! snake, which does not grow. New apples appear evenly on the free cells of the upper edge, or anywhere if it has none.
//!
//! **Observation.** `view = "board"`: the rows from top to bottom, one character a cell with spaces between: `1` own
//! head, `2` (to `9`) enemy head, `T` any body, `A` apple, `B` banana, `F` fire, `_` empty. `view = "full"` puts
//! coordinates, what things are worth and a key above the board; only it tells whose body is whose. The key of a state
//! says as much as that, in either view.
//!
//! **Start.** Things first, then the agents, then the enemies, each of one cell, on empty cells drawn evenly from the
//! scene. Luck moves the enemies and says where things reappear.
//!
//! **Rewards.** Each round `step_reward`, and what the agent ate, or `death_reward` if it died. Success is to be alive
//! and to have eaten things worth more than 0 in all; if nothing in the game is worth points, to have lost none.
//!
//! **End.** For an agent when it dies; the others play on. For all when at most one snake lives, unless the game began
//! with one. The referee's step limit is `step_limit` unless it is told otherwise.
//!
//! **Options.** `size` = 10, or `width` and `height` (each as `size` unless given); `agents` = 1 (1 to 9); `enemies` =
//! 1 (0 to 8), no more than 9 snakes in all; `apples` = 5; `bananas` = 0; `fires` = 0; `apple_reward` = 1 (-1 makes
//! poison apples, and the rules say so); `banana_reward` = 1; `fire_reward` = -1; `death_reward` = -2; `step_reward` =
//! -0.01; `step_limit` = 20; `view` = "board"; `opponent` = "random"; `hill` = "none" (no fires beside another). For
//! probes, and in the options in force only where they are not so: `swapped` = false (left and right swap their meaning
//! for agents), `symbols` = "usual", `wording` = "usual" (of the rules).
//!
//! **Habit.** The usual instructions are that apples give a point, and of nothing else. Where things are worth something
//! else, or words are swapped, the habit is the scripted player's choice by the usual ones. A hill changes no instruction.
//!
//! **Scripted player.** Greedy: of the moves that do not kill, rather those not next to an enemy's head, then rather
//! those onto nothing that costs points, it takes those nearest to something worth points. It does not plan ahead.
//!
//! **Departures from FastSnake.** Cells drawn are truly empty (there a slip of coordinates can put a snake on an
//! apple). Bananas and fires reappear after all have moved, like apples, not at once. `death_reward` is the whole cost
//! of death (there a fixed -1 plus the option). Without other snakes the game lasts until the agent dies (there one
//! round). When all agents are dead the game ends, even if two enemies live on. The round limit is the referee's and
//! truncates. There a hill can destroy apples at its bottom edge; here they stay. Greedy enemies and probes are ours.

mod board;
mod named;
mod options;
mod players;
mod text;

use std::sync::LazyLock;

use serde_json::Value;

use crate::options::View;
use crate::rng::Stream;
use crate::{Game, GameError, Kind, Outcome, Planes, Scenario, check_actions};
use board::{Board, Event, Snake, Thing};
use options::{Opponent, Options, usual_worth};

pub(crate) const KIND: Kind = Kind {
    name: NAME,
    summary: "Eat apples and grow on a board shared with another snake; walls and bodies kill.",
    options: options::OPTIONS,
    variants: named::VARIANTS,
    probes: named::PROBES,
    configure: |options| {
        Ok(Box::new(SnakeGame {
            options: Options::checked(options)?,
        }))
    },
};

const NAME: &str = "snake";

static ACTIONS: LazyLock<[String; 4]> =
    LazyLock::new(|| ["up", "down", "left", "right"].map(str::to_owned));

#[derive(Debug)]
struct SnakeGame {
    options: Options,
}

impl SnakeGame {
    /// The board that a scene starts from.
    fn board(&self, scene: u64) -> Board {
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
        Ok(Box::new(Episode::new(
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
        crate::options::in_force(&self.options)
    }
}

struct Episode {
    options: Options,
    board: Board,
    /// By agent the worth of all that it has eaten.
    scores: Vec<f64>,
    /// How the enemies move.
    enemies: Stream,
    /// Where things reappear.
    things: Stream,
}

impl Episode {
    fn new(options: Options, board: Board, scores: Vec<f64>, luck: u64) -> Episode {
        Episode {
            options,
            board,
            scores,
            enemies: Stream::new(luck, "snake enemies"),
            things: Stream::new(luck, "snake things"),
        }
    }

    fn over(&self) -> Vec<bool> {
        let alone = self.options.snakes() > 1 && self.board.living() <= 1;
        let agents = &self.board.snakes[..self.options.agents];
        agents.iter().map(|snake| alone || !snake.alive()).collect()
    }

    /// Has things reappear that were eaten. Counting what is missing also makes up for a board that was full before.
    fn replenish(&mut self) {
        let downhill = self.options.hill.way();
        for thing in Thing::ALL {
            let same = |(_, kind): &&(_, Thing)| *kind == thing;
            let there = self.board.things.iter().filter(same).count();
            for _ in there..self.options.count(thing) {
                match downhill {
                    Some((way, _)) if thing == Thing::Apple => {
                        self.board.put_uphill(thing, way, &mut self.things)
                    }
                    _ => self.board.put(thing, &mut self.things),
                }
            }
        }
    }

    /// How an enemy moves, if it lives.
    fn enemy(&mut self, who: usize) -> Option<usize> {
        let (board, options) = (&self.board, &self.options);
        match options.opponent {
            Opponent::Random => players::enemy(board, who, &mut self.enemies),
            Opponent::Greedy => {
                let worth = |thing| options.worth(thing);
                players::greedy_enemy(board, who, worth, &mut self.enemies)
            }
        }
    }
}

impl Game for Episode {
    fn observe(&self, agent: usize) -> Result<String, GameError> {
        let board = self.board.seen_by(agent);
        Ok(match self.options.view {
            View::Board => text::shown(&board, self.options.symbols),
            View::Full => text::told(&board, &self.options),
        })
    }

    fn key(&self, agent: usize) -> Result<String, GameError> {
        Ok(text::in_short(&self.board.seen_by(agent)))
    }

    /// Own head, own body behind it, the heads of the others, their bodies, and a plane for each kind of thing that the
    /// game has: apples, bananas, fires.
    fn planes(&self, agent: usize) -> Result<Option<Planes>, GameError> {
        let board = self.board.seen_by(agent);
        let kinds = self.options.kinds();
        let mut names = vec!["own head", "own body", "other head", "other body"];
        names.extend(kinds.iter().map(|&thing| text::name(thing)));
        let mut planes = Planes::new(names, board.height, board.width);
        let place = |(x, y): board::Cell| (board.height - 1 - y, x);
        for (who, snake) in board.snakes.iter().enumerate() {
            let first = if who == 0 { 0 } else { 2 };
            for (part, &cell) in snake.0.iter().enumerate() {
                planes.set(first + part.min(1), place(cell));
            }
        }
        for &(cell, thing) in &board.things {
            let plane = kinds.iter().position(|kind| *kind == thing);
            planes.set(4 + plane.expect("only these are put there"), place(cell));
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
            apples as f64 * self.options.worth(Thing::Apple)
        };
        for (agent, score) in self.scores.iter_mut().enumerate() {
            if let Event::Ate(thing) = events[agent] {
                *score += self.options.worth(thing);
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
        let worthwhile = self
            .options
            .kinds()
            .into_iter()
            .any(|thing| self.options.worth(thing) > 0.0);
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
        let ways = players::greedy(&board, |thing| self.options.worth(thing));
        let mut actions: Vec<usize> = ways.iter().map(|&way| self.options.meant(way)).collect();
        actions.sort();
        Some(actions)
    }

    fn habit(&self, agent: usize) -> Option<Vec<usize>> {
        let by_habit = || players::greedy(&self.board.seen_by(agent), usual_worth);
        self.options.changed().then(by_habit)
    }

    fn fork(&self, luck: u64) -> Option<Box<dyn Game>> {
        Some(Box::new(Episode::new(
            self.options.clone(),
            self.board.clone(),
            self.scores.clone(),
            luck,
        )))
    }
}

#[cfg(test)]
mod tests;
