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

/// Returns what lies where each action leads, such as "left: edge, down: ice".
pub(crate) fn surroundings(actions: &[String], seen: impl Fn(usize) -> &'static str) -> String {
    let beside = |(number, action)| format!("{action}: {}", seen(number));
    let sides: Vec<String> = actions.iter().enumerate().map(beside).collect();
    sides.join(", ")
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
