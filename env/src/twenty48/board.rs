//! The board of 2048 and its moves.

use crate::picture::Role;
use crate::rng::Stream;

/// The direction of a slide upwards.
pub(super) const UP: usize = 0;

const SIDE: usize = 4;

/// The levels of the tiles, row by row from the top left: 0 for an empty cell, 1 for a 2, 11 for a 2048.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TileBoard(pub [u8; SIDE * SIDE]);

impl TileBoard {
    /// Slides all tiles (up 0, down 1, left 2, right 3) and returns whether anything moved.
    pub(crate) fn slide(&mut self, way: usize) -> bool {
        let before = *self;
        for line in 0..SIDE {
            // The cell at the wall that the line slides to, and the distance to the next cell.
            let (first, step) = match way {
                UP => (line, SIDE as isize),
                1 => (line + SIDE * (SIDE - 1), -(SIDE as isize)),
                2 => (line * SIDE, 1),
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

    /// Puts a drawn tile on an empty cell, if there is one.
    pub(crate) fn spawn(&mut self, stream: &mut Stream) {
        let count = self.empty().count();
        if count == 0 {
            return;
        }
        let cell = self.empty().nth(stream.below(count));
        let tile = if stream.below(10) == 0 { 2 } else { 1 };
        self.0[cell.expect("one of the empty cells was drawn")] = tile;
    }

    pub(crate) fn empty(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len()).filter(|&cell| self.0[cell] == 0)
    }

    /// Returns the level of the highest tile.
    pub(crate) fn highest(&self) -> u8 {
        self.0.iter().copied().max().unwrap_or_default()
    }

    /// Whether no move would move anything.
    pub(crate) fn stuck(&self) -> bool {
        let equal = |one: usize, other: usize| self.0[one] == self.0[other];
        self.0.iter().all(|&tile| tile != 0)
            && (0..self.0.len()).all(|cell| {
                (cell % SIDE == SIDE - 1 || !equal(cell, cell + 1))
                    && (cell + SIDE >= self.0.len() || !equal(cell, cell + SIDE))
            })
    }

    /// Returns the picture; `name` returns the sign of a level.
    pub(crate) fn picture(&self, name: impl Fn(u8) -> String) -> String {
        let sign = |&tile: &u8| match tile {
            0 => "_".to_owned(),
            level => name(level),
        };
        let row = |row: &[u8]| row.iter().map(sign).collect::<Vec<String>>().join(" ");
        let rows: Vec<String> = self.0.chunks(SIDE).map(row).collect();
        rows.join("\n")
    }

    /// Returns the key of a state: the sixteen levels, each as one letter or digit.
    pub(crate) fn key(&self) -> String {
        let sign = |&level: &u8| char::from_digit(u32::from(level), 36).unwrap_or('?');
        self.0.iter().map(sign).collect()
    }
}

/// Returns the role of a cell: a tile as a number or as a letter.
pub(super) fn role(cell: &str) -> Option<Role> {
    let level = match cell.as_bytes() {
        b"_" => return Some(Role::Floor),
        [letter @ b'A'..=b'Z'] => u32::from(letter - b'A' + 1),
        digits if digits.iter().all(u8::is_ascii_digit) => cell.parse::<u64>().ok()?.max(2).ilog2(),
        _ => return None,
    };
    Some(Role::Tile(level))
}
