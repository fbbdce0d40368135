//! The board of Snake and its rounds. Only the cells of new food are random.

use std::collections::VecDeque;

use crate::picture::Cell;
use crate::rng::Stream;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Food {
    Apple,
    Banana,
    Fire,
}

impl Food {
    pub(crate) const ALL: [Food; 3] = [Food::Apple, Food::Banana, Food::Fire];

    pub(crate) fn name(self) -> &'static str {
        ["apple", "banana", "fire"][self as usize]
    }

    /// The name of several, at the beginning of a line.
    pub(crate) fn title(self) -> &'static str {
        ["Apples", "Bananas", "Fires"][self as usize]
    }
}

/// A snake, head first. A dead snake has no cells.
pub(super) type Snake = VecDeque<Cell>;

/// The result of a round for one snake.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SnakeEvent {
    Nothing,
    /// With the reason.
    Died(&'static str),
    Ate(Food),
}

/// The state of the game. Cells are counted from (0, 0) at the bottom left; agents come before enemies.
#[derive(Debug, Clone)]
pub(super) struct SnakeBoard {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) snakes: Vec<Snake>,
    pub(crate) food: Vec<(Cell, Food)>,
}

impl SnakeBoard {
    /// Returns the board as an agent sees it: its own snake first, then the others in their order.
    pub(crate) fn seen_by(&self, agent: usize) -> SnakeBoard {
        let mut board = self.clone();
        board.snakes[..=agent].rotate_right(1);
        board
    }

    /// Plays one round, in which all snakes move at once (up 0, down 1, left 2, right 3, `None` stays). A snake dies if it
    /// leaves the board, if another snake moves to the same cell, or if any snake, itself included, occupied that cell
    /// before the round. Otherwise it eats the food of the cell and grows, or moves. Eaten food is removed and not
    /// replaced here.
    pub(crate) fn advance(&mut self, moves: &[Option<usize>]) -> Vec<SnakeEvent> {
        // `None` stays, `Some(None)` leaves the board.
        let step =
            |(snake, way): (&Snake, &Option<usize>)| Some(self.neighbour(*snake.front()?, (*way)?));
        let steps: Vec<Option<Option<Cell>>> = self.snakes.iter().zip(moves).map(step).collect();
        // All deaths are decided before any snake moves.
        let dies = |(who, step): (usize, &Option<Option<Cell>>)| match step {
            None => None,
            Some(None) => Some("hit the wall"),
            Some(Some(cell)) if self.snakes[who].contains(cell) => Some("hit its own body"),
            Some(Some(cell)) => {
                let meets = steps.iter().filter(|other| *other == step).count() > 1;
                (meets || self.taken(*cell)).then_some("hit another snake")
            }
        };
        let fates: Vec<Option<&str>> = steps.iter().enumerate().map(dies).collect();
        let mut events = vec![SnakeEvent::Nothing; self.snakes.len()];
        for (who, event) in events.iter_mut().enumerate() {
            let body = &mut self.snakes[who];
            if let Some(reason) = fates[who] {
                body.clear();
                *event = SnakeEvent::Died(reason);
            } else if let Some(Some(cell)) = steps[who] {
                body.push_front(cell);
                if let Some(place) = self.food.iter().position(|&(at, _)| at == cell) {
                    *event = SnakeEvent::Ate(self.food.remove(place).1);
                } else {
                    body.pop_back();
                }
            }
        }
        events
    }

    /// Returns the next cell in direction `way`, unless it is off the board.
    pub(crate) fn neighbour(&self, (x, y): Cell, way: usize) -> Option<Cell> {
        match way {
            0 => (y + 1 < self.height).then_some((x, y + 1)),
            1 => y.checked_sub(1).map(|y| (x, y)),
            2 => x.checked_sub(1).map(|x| (x, y)),
            _ => (x + 1 < self.width).then_some((x + 1, y)),
        }
    }

    pub(crate) fn taken(&self, cell: Cell) -> bool {
        self.snakes.iter().any(|snake| snake.contains(&cell))
    }

    /// Returns the cells with this food, in the order of `food`.
    pub(crate) fn cells_of(&self, food: Food) -> Vec<Cell> {
        let same = self.food.iter().filter(|(_, kind)| *kind == food);
        same.map(|&(cell, _)| cell).collect()
    }

    pub(crate) fn living(&self) -> usize {
        self.snakes.iter().filter(|snake| !snake.is_empty()).count()
    }

    pub(crate) fn food_at(&self, cell: Cell) -> Option<Food> {
        let found = self.food.iter().find(|(at, _)| *at == cell);
        found.map(|&(_, food)| food)
    }

    /// Rolls every apple one cell in direction `way`, unless the wall, a body or other food is there. An apple that rolls
    /// onto a head is eaten. Returns the index of the eating snake for each eaten apple.
    pub(crate) fn roll(&mut self, way: usize) -> Vec<usize> {
        let mut apples = self.cells_of(Food::Apple);
        // The farthest downhill first: they make room for those behind them.
        apples.sort_by_key(|&cell| self.to_the_edge(cell, way));
        let mut eaters = Vec::new();
        for from in apples {
            let Some(to) = self.neighbour(from, way) else {
                continue;
            };
            let place = self.food.iter().position(|&(at, _)| at == from);
            let place = place.expect("an apple stays in its cell until its turn");
            let eater = self.snakes.iter().position(|it| it.front() == Some(&to));
            if let Some(eater) = eater {
                self.food.remove(place);
                eaters.push(eater);
            } else if !self.taken(to) && self.food_at(to).is_none() {
                self.food[place].0 = to;
            }
        }
        eaters
    }

    /// Returns the number of cells between a cell and the edge in direction `way`.
    fn to_the_edge(&self, (x, y): Cell, way: usize) -> usize {
        match way {
            0 => self.height - 1 - y,
            1 => y,
            2 => x,
            _ => self.width - 1 - x,
        }
    }

    /// Draws an empty cell evenly, of the edge in direction `edge` if it has one; `None` if the board is full.
    pub(crate) fn free_cell(&self, edge: Option<usize>, stream: &mut Stream) -> Option<Cell> {
        let mut free = vec![true; self.width * self.height];
        let bodies = self.snakes.iter().flatten();
        for &(x, y) in bodies.chain(self.food.iter().map(|(cell, _)| cell)) {
            free[y * self.width + x] = false;
        }
        let cells = (0..free.len()).filter(|&cell| free[cell]);
        let mut cells: Vec<Cell> = cells
            .map(|cell| (cell % self.width, cell / self.width))
            .collect();
        let at_edge = |&cell: &Cell| edge.is_some_and(|way| self.to_the_edge(cell, way) == 0);
        if cells.iter().any(at_edge) {
            cells.retain(at_edge);
        }
        let number = stream.below(cells.len().max(1));
        cells.get(number).copied()
    }

    /// Puts food on a [`SnakeBoard::free_cell`], if there is one.
    pub(crate) fn put(&mut self, food: Food, edge: Option<usize>, stream: &mut Stream) {
        let cell = self.free_cell(edge, stream);
        self.food.extend(cell.map(|cell| (cell, food)));
    }
}
