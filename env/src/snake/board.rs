//! The board of a Snake game and what one round does to it. Nothing here is left to chance but where things appear.

use std::collections::VecDeque;

use crate::rng::Stream;

/// Column and row, from (0, 0) at the bottom left.
pub(super) type Cell = (usize, usize);

/// What lies about to be eaten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Apple,
    Banana,
    Fire,
}

impl Thing {
    pub const ALL: [Thing; 3] = [Thing::Apple, Thing::Banana, Thing::Fire];
}

/// A snake, head first. A dead one has left the board and has no cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Snake(pub VecDeque<Cell>);

impl Snake {
    pub fn head(&self) -> Option<Cell> {
        self.0.front().copied()
    }

    pub fn alive(&self) -> bool {
        !self.0.is_empty()
    }
}

/// What a round brought to one snake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Event {
    Nothing,
    Died,
    Ate(Thing),
}

/// Where a snake is about to put its head.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Stay,
    OffTheBoard,
    To(Cell),
}

/// The state of the game. The agents come first, the enemies after them.
#[derive(Debug, Clone)]
pub(super) struct Board {
    pub width: usize,
    pub height: usize,
    pub snakes: Vec<Snake>,
    pub things: Vec<(Cell, Thing)>,
}

impl Board {
    /// The board as an agent sees it: with its own snake first, and the others behind it in their order.
    pub fn seen_by(&self, agent: usize) -> Board {
        let mut board = self.clone();
        board.snakes[..=agent].rotate_right(1);
        board
    }

    /// Plays one round: every snake moves at once, by its place in `moves` (up 0, down 1, left 2, right 3; `None` stays
    /// where it is). A snake dies if it leaves the board, if another moves to the same cell, or if any snake, itself
    /// included, was on that cell before the round, even with a tail that moves away. Otherwise it eats what is there
    /// and grows, or else follows its head. What was eaten is gone; nothing is put in its place here.
    pub fn advance(&mut self, moves: &[Option<usize>]) -> Vec<Event> {
        let step = |snake: &Snake, way: &Option<usize>| match (snake.head(), way) {
            (Some(head), Some(way)) => self
                .neighbour(head, *way)
                .map_or(Step::OffTheBoard, Step::To),
            _ => Step::Stay,
        };
        let steps: Vec<Step> = self
            .snakes
            .iter()
            .zip(moves)
            .map(|(snake, way)| step(snake, way))
            .collect();
        // All fates are settled before anything moves: that is what moving at once means.
        let dies = |step: &Step| match step {
            Step::Stay => false,
            Step::OffTheBoard => true,
            Step::To(cell) => {
                self.taken(*cell) || steps.iter().filter(|other| *other == step).count() > 1
            }
        };
        let fates: Vec<bool> = steps.iter().map(dies).collect();
        let mut events = vec![Event::Nothing; self.snakes.len()];
        for (who, event) in events.iter_mut().enumerate() {
            if fates[who] {
                self.snakes[who].0.clear();
                *event = Event::Died;
            } else if let Step::To(cell) = steps[who] {
                *event = self.enter(who, cell);
            }
        }
        events
    }

    fn enter(&mut self, who: usize, cell: Cell) -> Event {
        let body = &mut self.snakes[who].0;
        body.push_front(cell);
        match self.things.iter().position(|&(at, _)| at == cell) {
            Some(place) => Event::Ate(self.things.remove(place).1),
            None => {
                body.pop_back();
                Event::Nothing
            }
        }
    }

    /// The cell one step that way, unless that is off the board.
    pub fn neighbour(&self, (x, y): Cell, way: usize) -> Option<Cell> {
        match way {
            0 => (y + 1 < self.height).then_some((x, y + 1)),
            1 => y.checked_sub(1).map(|y| (x, y)),
            2 => x.checked_sub(1).map(|x| (x, y)),
            _ => (x + 1 < self.width).then_some((x + 1, y)),
        }
    }

    /// Whether a snake is there.
    pub fn taken(&self, cell: Cell) -> bool {
        self.snakes.iter().any(|snake| snake.0.contains(&cell))
    }

    pub fn living(&self) -> usize {
        self.snakes.iter().filter(|snake| snake.alive()).count()
    }

    /// What lies on a cell.
    pub fn thing(&self, cell: Cell) -> Option<Thing> {
        self.things
            .iter()
            .find(|&&(at, _)| at == cell)
            .map(|&(_, thing)| thing)
    }

    /// Rolls every apple one cell that way, unless the wall, a body or another thing is there. Rolled onto a head it is
    /// eaten: the answer names the snake that the head is of, once for each apple.
    pub fn roll(&mut self, way: usize) -> Vec<usize> {
        let is_apple = |(_, thing): &&(Cell, Thing)| *thing == Thing::Apple;
        let mut apples: Vec<Cell> = self
            .things
            .iter()
            .filter(is_apple)
            .map(|&(cell, _)| cell)
            .collect();
        // Those farthest down first: they make room for those behind them.
        apples.sort_by_key(|&cell| self.to_the_edge(cell, way));
        let mut eaters = Vec::new();
        for from in apples {
            let Some(to) = self.neighbour(from, way) else {
                continue;
            };
            let place = self.things.iter().position(|&(at, _)| at == from);
            let place = place.expect("an apple stays where it is until its turn");
            let eater = self.snakes.iter().position(|it| it.head() == Some(to));
            if let Some(eater) = eater {
                self.things.remove(place);
                eaters.push(eater);
            } else if !self.taken(to) && self.thing(to).is_none() {
                self.things[place].0 = to;
            }
        }
        eaters
    }

    /// How many cells lie between a cell and the edge that way.
    fn to_the_edge(&self, (x, y): Cell, way: usize) -> usize {
        match way {
            0 => self.height - 1 - y,
            1 => y,
            2 => x,
            _ => self.width - 1 - x,
        }
    }

    /// A cell with nothing on it, each as likely as the others, unless the board is full.
    pub fn free_cell(&self, stream: &mut Stream) -> Option<Cell> {
        let free = self.free();
        let count = free.iter().filter(|&&free| free).count();
        let number = stream.below(count.max(1));
        let cell = (0..free.len()).filter(|&cell| free[cell]).nth(number)?;
        Some((cell % self.width, cell / self.width))
    }

    /// By cell, row by row from the bottom, whether nothing is on it.
    fn free(&self) -> Vec<bool> {
        let mut free = vec![true; self.width * self.height];
        let bodies = self.snakes.iter().flat_map(|snake| &snake.0);
        for &(x, y) in bodies.chain(self.things.iter().map(|(cell, _)| cell)) {
            free[y * self.width + x] = false;
        }
        free
    }

    /// Puts a thing on a free cell of the edge from which it rolls that way, or if there is none, on any free cell.
    pub fn put_uphill(&mut self, thing: Thing, way: usize, stream: &mut Stream) {
        // Up and down are 0 and 1, left and right 2 and 3.
        let uphill = way ^ 1;
        let free = self.free();
        let edge: Vec<Cell> = (0..free.len())
            .filter(|&cell| free[cell])
            .map(|cell| (cell % self.width, cell / self.width))
            .filter(|&cell| self.to_the_edge(cell, uphill) == 0)
            .collect();
        if edge.is_empty() {
            return self.put(thing, stream);
        }
        let cell = edge[stream.below(edge.len())];
        self.things.push((cell, thing));
    }

    /// Puts a thing on a free cell. On a full board there is no room and it stays away.
    pub fn put(&mut self, thing: Thing, stream: &mut Stream) {
        if let Some(cell) = self.free_cell(stream) {
            self.things.push((cell, thing));
        }
    }
}
