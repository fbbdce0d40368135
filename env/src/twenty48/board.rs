//! The tiles and what a move does to them.

use crate::rng::Stream;

/// The ways to slide, in the order of the actions.
pub(super) const UP: usize = 0;
pub(super) const DOWN: usize = 1;
pub(super) const LEFT: usize = 2;
pub(super) const RIGHT: usize = 3;

/// Cells a side.
const SIDE: usize = 4;

/// The board row by row from the top left, each tile as the number of doublings that its worth is from 1: level 1 is a
/// 2, level 11 a 2048. 0 is an empty cell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Board(pub [u8; SIDE * SIDE]);

impl Board {
    /// Slides all tiles. Says whether anything moved.
    pub fn slide(&mut self, way: usize) -> bool {
        let before = *self;
        for line in 0..SIDE {
            // Where the line begins that ends at the wall it slides to, and how far it is from cell to cell.
            let (first, step) = match way {
                UP => (line, SIDE as isize),
                DOWN => (line + SIDE * (SIDE - 1), -(SIDE as isize)),
                LEFT => (line * SIDE, 1),
                _ => (line * SIDE + SIDE - 1, -1),
            };
            let cell = |place: usize| (first as isize + step * place as isize) as usize;
            let mut slid = [0; SIDE];
            let (mut count, mut mergeable) = (0, false);
            for place in 0..SIDE {
                let tile = self.0[cell(place)];
                if tile == 0 {
                    continue;
                }
                mergeable = if mergeable && slid[count - 1] == tile {
                    slid[count - 1] += 1;
                    false
                } else {
                    slid[count] = tile;
                    count += 1;
                    true
                };
            }
            for (place, tile) in slid.into_iter().enumerate() {
                self.0[cell(place)] = tile;
            }
        }
        *self != before
    }

    /// Puts a new tile on an empty cell, if there is one.
    pub fn spawn(&mut self, stream: &mut Stream) {
        let count = self.empty().count();
        if count == 0 {
            return;
        }
        let cell = self.empty().nth(stream.below(count));
        let tile = if stream.below(10) == 0 { 2 } else { 1 };
        self.0[cell.expect("one of the empty cells was drawn")] = tile;
    }

    pub fn empty(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len()).filter(|&cell| self.0[cell] == 0)
    }

    /// The level of the highest tile.
    pub fn highest(&self) -> u8 {
        self.0.iter().copied().max().unwrap_or_default()
    }

    /// Whether no move would move anything.
    pub fn stuck(&self) -> bool {
        let equal = |one: usize, other: usize| self.0[one] == self.0[other];
        self.0.iter().all(|&tile| tile != 0)
            && (0..self.0.len()).all(|cell| {
                (cell % SIDE == SIDE - 1 || !equal(cell, cell + 1))
                    && (cell + SIDE >= self.0.len() || !equal(cell, cell + SIDE))
            })
    }

    /// The picture; `name` gives each tile its sign by its level.
    pub fn told(&self, name: impl Fn(u8) -> String) -> String {
        let sign = |&tile: &u8| match tile {
            0 => "_".to_owned(),
            level => name(level),
        };
        let row = |row: &[u8]| row.iter().map(sign).collect::<Vec<String>>().join(" ");
        let rows: Vec<String> = self.0.chunks(SIDE).map(row).collect();
        rows.join("\n")
    }

    /// The sixteen levels, each as one letter or digit.
    pub fn in_short(&self) -> String {
        let sign = |&level: &u8| char::from_digit(u32::from(level), 36).unwrap_or('?');
        self.0.iter().map(sign).collect()
    }
}
