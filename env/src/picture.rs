//! Pictures of boards: rows of cells, their coordinates in words, and the meaning of their signs.

use crate::options::Phrasing;

/// The meaning of a cell in a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The agent that sees the board.
    Player,
    /// Another player.
    Opponent,
    /// The body behind a head.
    Body,
    /// A place to reach, or a thing to get.
    Goal,
    /// A thing on its goal.
    Done,
    /// Another thing.
    Item,
    /// A place or thing that costs points.
    Hazard,
    /// A place that ends the game.
    Hole,
    /// A wall.
    Wall,
    /// An empty cell.
    Floor,
    /// A tile by its level: 1 for the lowest.
    Tile(u32),
}

/// A legend returns the meaning of a cell; `None` for a text that is no cell of the game's pictures.
pub type Legend = fn(cell: &str) -> Option<Role>;

/// Column and row of a cell. Each game has its own origin.
pub(crate) type Cell = (usize, usize);

/// Returns the number of steps between two cells.
pub(crate) fn distance(one: Cell, other: Cell) -> usize {
    one.0.abs_diff(other.0) + one.1.abs_diff(other.1)
}

/// Returns rows of one character per cell with spaces between; the cells come row by row from the top left.
pub(crate) fn rows(cells: impl ExactSizeIterator<Item = char>, width: usize) -> String {
    let mut rows = String::with_capacity(2 * cells.len());
    for (number, cell) in cells.enumerate() {
        if number > 0 {
            rows.push(if number % width == 0 { '\n' } else { ' ' });
        }
        rows.push(cell);
    }
    rows
}

pub(crate) fn coordinates(width: usize, height: usize) -> String {
    format!(
        "The board is {width}x{height}, in (x, y) coordinates from (0, 0) at the bottom left to ({}, {}) at the top right.",
        width - 1,
        height - 1
    )
}

pub(crate) fn seen_from(width: usize, height: usize, whom: &str) -> String {
    format!("The board is {width}x{height}. Where things are, in moves from {whom}:")
}

/// Returns the signs before x for `left` and for `right`.
pub(crate) fn signs_of_x(swapped: bool) -> [char; 2] {
    if swapped { ['+', '-'] } else { ['-', '+'] }
}

/// Returns cells in coordinates, or "none".
pub(crate) fn list(cells: impl Iterator<Item = Cell>) -> String {
    let cells: Vec<String> = cells.map(|(x, y)| format!("({x}, {y})")).collect();
    if cells.is_empty() {
        "none".to_owned()
    } else {
        cells.join(", ")
    }
}

/// Where things lie, in words of moves.
pub(crate) struct Ways {
    /// Where the moves begin.
    pub(crate) from: Cell,
    /// Whether the words left and right are swapped.
    pub(crate) swapped: bool,
}

impl Ways {
    /// Returns the moves to each of these cells, such as "down, right right down"; or "none".
    pub(crate) fn to(&self, cells: impl Iterator<Item = Cell>) -> String {
        let ways: Vec<String> = cells.map(|cell| self.way(cell)).collect();
        match ways.is_empty() {
            true => "none".to_owned(),
            false => ways.join(", "),
        }
    }

    /// Returns the moves to each of these cells, the nearest first.
    pub(crate) fn to_nearest_first(&self, mut cells: Vec<Cell>) -> String {
        cells.sort_by_key(|&cell| (distance(self.from, cell), cell));
        self.to(cells.into_iter())
    }

    fn way(&self, (x, y): Cell) -> String {
        let (from_x, from_y) = self.from;
        self.in_words([
            from_x.saturating_sub(x),
            from_y.saturating_sub(y),
            x.saturating_sub(from_x),
            y.saturating_sub(from_y),
        ])
    }

    /// Returns the moves into each wall of a board.
    pub(crate) fn to_walls(&self, width: usize, height: usize) -> String {
        let (x, y) = self.from;
        [
            [x + 1, 0, 0, 0],
            [0, y + 1, 0, 0],
            [0, 0, width - x, 0],
            [0, 0, 0, height - y],
        ]
        .map(|times| self.in_words(times))
        .join(", ")
    }

    /// Returns as many moves to the left, down, to the right and up.
    fn in_words(&self, times: [usize; 4]) -> String {
        let words = match self.swapped {
            true => ["right", "down", "left", "up"],
            false => ["left", "down", "right", "up"],
        };
        let moves = words.into_iter().zip(times);
        let moves: Vec<&str> = moves.flat_map(|(word, times)| vec![word; times]).collect();
        moves.join(" ")
    }
}

/// Returns the role of a cell in either set of signs. They have the same order as `roles`.
pub(crate) fn role<const N: usize>(
    cell: &str,
    signs: fn(Phrasing) -> [char; N],
    roles: [Role; N],
) -> Option<Role> {
    let is_cell = |sign: &char| cell.strip_prefix(*sign) == Some("");
    let mut sets = [Phrasing::Usual, Phrasing::Other].into_iter().map(signs);
    let place = sets.find_map(|set| set.iter().position(is_cell))?;
    Some(roles[place])
}
