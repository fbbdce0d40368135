//! The map of a lake: where it comes from, and where its moves lead.

use std::collections::VecDeque;

use crate::rng::Stream;

/// What a cell is. The start is ice like any other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Cell {
    Ice,
    /// Ice like any other, but red.
    Red,
    Hole,
    Goal,
}

impl Cell {
    /// Whether one can stand there and go on.
    pub fn is_ice(self) -> bool {
        matches!(self, Cell::Ice | Cell::Red)
    }
}

/// A lake. Cells are numbered row by row from the top left.
#[derive(Debug, Clone)]
pub(super) struct Map {
    width: usize,
    cells: Vec<Cell>,
    start: usize,
}

/// After so many maps without a way to the goal, one is cleared.
const DRAWS: usize = 1000;

/// The ways an action can go on slippery ice, each as likely as the others: as meant, and to both sides of it.
pub(super) fn slips(action: usize) -> [usize; 3] {
    [(action + 3) % 4, action, (action + 1) % 4]
}

impl Map {
    /// Reads rows of `S`, `F`, `H` and `G`; the error says what is wrong with them, as the end of a sentence about them.
    pub fn parse(rows: &[String], longest_side: usize) -> Result<Map, String> {
        let width = rows.first().map_or(0, |row| row.chars().count());
        if width == 0 {
            return Err("is empty, but must have at least a start `S` and a goal `G`".to_owned());
        }
        if width > longest_side || rows.len() > longest_side {
            return Err(format!(
                "is {width} wide and {} high, but must be at most {longest_side} each way",
                rows.len()
            ));
        }
        for (number, row) in rows.iter().enumerate() {
            let count = row.chars().count();
            if count != width {
                return Err(format!(
                    "has {count} cells in row {}, but must have {width} as in row 1",
                    number + 1
                ));
            }
            if let Some(letter) = row.chars().find(|letter| !"SFHG".contains(*letter)) {
                return Err(format!(
                    "has {letter:?} in row {}, but must be of the letters S, F, H and G",
                    number + 1
                ));
            }
        }
        let letters: String = rows.concat();
        let only = |letter, name| match letters.matches(letter).count() {
            1 => Ok(letters.find(letter).unwrap_or_default()),
            count => Err(format!(
                "has {count} cells `{letter}`, but must have one {name}"
            )),
        };
        let start = only('S', "start")?;
        only('G', "goal")?;
        let cell = |letter| match letter {
            'H' => Cell::Hole,
            'G' => Cell::Goal,
            _ => Cell::Ice,
        };
        let map = Map {
            width,
            cells: letters.chars().map(cell).collect(),
            start,
        };
        match map.distances()[start] {
            Some(_) => Ok(map),
            None => Err("has no way from `S` to `G`, but must have one".to_owned()),
        }
    }

    /// Draws maps until the goal can be reached: start at the top left, goal at the bottom right, every other cell
    /// frozen with the given probability (Gymnasium's generator).
    pub fn draw(width: usize, height: usize, frozen: f64, stream: &mut Stream) -> Map {
        let (start, goal) = (0, width * height - 1);
        let mut map = Map {
            width,
            cells: vec![Cell::Ice; width * height],
            start,
        };
        for _ in 0..DRAWS {
            for cell in &mut map.cells {
                *cell = if stream.chance(frozen) {
                    Cell::Ice
                } else {
                    Cell::Hole
                };
            }
            map.cells[start] = Cell::Ice;
            map.cells[goal] = Cell::Goal;
            if map.distances()[start].is_some() {
                return map;
            }
        }
        map.clear_a_path(stream);
        map
    }

    /// Freezes the cells of a random shortest path over the whole board.
    fn clear_a_path(&mut self, stream: &mut Stream) {
        let (width, height) = (self.width, self.height());
        let (mut x, mut y) = (0, 0);
        while (x, y) != (width - 1, height - 1) {
            self.cells[y * width + x] = Cell::Ice;
            let rightwards = width - 1 - x;
            if stream.below(rightwards + height - 1 - y) < rightwards {
                x += 1
            } else {
                y += 1
            }
        }
    }

    /// Colours so many cells red, each as likely as the others, but none without which the goal cannot be reached: fewer
    /// if there are not so many.
    pub fn redden(&mut self, count: usize, stream: &mut Stream) {
        let ice = |&cell: &usize| self.cells[cell] == Cell::Ice && cell != self.start;
        let mut candidates: Vec<usize> = (0..self.size()).filter(ice).collect();
        let mut left = count;
        while left > 0 && !candidates.is_empty() {
            let cell = candidates.swap_remove(stream.below(candidates.len()));
            self.cells[cell] = Cell::Red;
            let around = self.distances_to(Cell::Goal, |cell| cell == Cell::Ice);
            if around[self.start].is_some() {
                left -= 1;
            } else {
                self.cells[cell] = Cell::Ice;
            }
        }
    }

    pub fn start(&self) -> usize {
        self.start
    }

    pub fn cell(&self, cell: usize) -> Cell {
        self.cells[cell]
    }

    pub fn size(&self) -> usize {
        self.cells.len()
    }

    pub fn width(&self) -> usize {
        self.width
    }

    pub fn height(&self) -> usize {
        self.cells.len() / self.width
    }

    /// The cell one step that way (left 0, down 1, right 2, up 3), or the same cell at the edge.
    pub fn neighbour(&self, cell: usize, way: usize) -> usize {
        let (x, y) = (cell % self.width, cell / self.width);
        let (x, y) = match way {
            0 => (x.saturating_sub(1), y),
            1 => (x, (y + 1).min(self.height() - 1)),
            2 => ((x + 1).min(self.width - 1), y),
            _ => (x, y.saturating_sub(1)),
        };
        y * self.width + x
    }

    /// For every cell the number of steps to the goal over firm ice, if there is a way.
    pub fn distances(&self) -> Vec<Option<usize>> {
        self.distances_to(Cell::Goal, Cell::is_ice)
    }

    /// For every cell the number of steps to the nearest of the wanted kind over cells that will do, if there is a way.
    pub fn distances_to(&self, wanted: Cell, will_do: impl Fn(Cell) -> bool) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.size()];
        let mut reached = VecDeque::new();
        for cell in self.cells_of(wanted) {
            distances[cell] = Some(0);
            reached.push_back((cell, 0));
        }
        while let Some((cell, distance)) = reached.pop_front() {
            for way in 0..4 {
                let next = self.neighbour(cell, way);
                if distances[next].is_none() && will_do(self.cells[next]) {
                    distances[next] = Some(distance + 1);
                    reached.push_back((next, distance + 1));
                }
            }
        }
        distances
    }

    /// The cells of a kind.
    pub fn cells_of(&self, kind: Cell) -> impl Iterator<Item = usize> {
        (0..self.size()).filter(move |&cell| self.cells[cell] == kind)
    }

    /// The rows as [`Map::parse`] reads them, with `R` for red ice.
    pub fn rows(&self) -> Vec<String> {
        let letter = |cell| match self.cells[cell] {
            Cell::Hole => 'H',
            Cell::Goal => 'G',
            Cell::Red => 'R',
            Cell::Ice if cell == self.start => 'S',
            Cell::Ice => 'F',
        };
        let row = |y| {
            (0..self.width)
                .map(|x| letter(y * self.width + x))
                .collect()
        };
        (0..self.height()).map(row).collect()
    }

    /// The lake and its player in one line: its rows and the number of the player's cell.
    pub fn in_short(&self, player: usize) -> String {
        // Nobody sees where the start was.
        format!("{} {player}", self.rows().join("/").replace('S', "F"))
    }
}
