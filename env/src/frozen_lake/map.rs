//! Maps of lakes: reading and drawing them, moves and distances.

use std::collections::VecDeque;

use crate::rng::Stream;

/// The kind of a cell. The start is ice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LakeCell {
    Ice,
    Red,
    Hole,
    Goal,
}

impl LakeCell {
    /// Whether the game continues on it.
    pub(crate) fn is_ice(self) -> bool {
        matches!(self, LakeCell::Ice | LakeCell::Red)
    }
}

/// A map. Cells are numbered row by row from the top left.
#[derive(Debug, Clone)]
pub(super) struct LakeMap {
    pub(crate) width: usize,
    pub(crate) cells: Vec<LakeCell>,
    pub(crate) start: usize,
}

/// The number of maps that are drawn before a path is cleared in the last one.
const DRAWS: usize = 1000;

/// Returns the three moves that a move can become on slippery ice with equal probability: itself and those to its sides.
pub(super) fn slips(action: usize) -> [usize; 3] {
    [(action + 3) % 4, action, (action + 1) % 4]
}

impl LakeMap {
    /// Reads rows of `S`, `F`, `H` and `G`. The error continues a sentence that begins with the option's name.
    pub(crate) fn parse(rows: &[String], longest_side: usize) -> Result<LakeMap, String> {
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
            'H' => LakeCell::Hole,
            'G' => LakeCell::Goal,
            _ => LakeCell::Ice,
        };
        let map = LakeMap {
            width,
            cells: letters.chars().map(cell).collect(),
            start,
        };
        match map.distances_to(LakeCell::Goal, LakeCell::is_ice)[start] {
            Some(_) => Ok(map),
            None => Err("has no path from `S` to `G`, but must have one".to_owned()),
        }
    }

    /// Draws maps until the goal can be reached, as Gymnasium does: the start is at the top left, the goal at the bottom
    /// right, and every other cell is ice with probability `frozen`.
    pub(crate) fn draw(width: usize, height: usize, frozen: f64, stream: &mut Stream) -> LakeMap {
        let (start, goal) = (0, width * height - 1);
        let mut map = LakeMap {
            width,
            cells: vec![LakeCell::Ice; width * height],
            start,
        };
        for _ in 0..DRAWS {
            for cell in &mut map.cells {
                *cell = if stream.chance(frozen) {
                    LakeCell::Ice
                } else {
                    LakeCell::Hole
                };
            }
            map.cells[start] = LakeCell::Ice;
            map.cells[goal] = LakeCell::Goal;
            if map.distances_to(LakeCell::Goal, LakeCell::is_ice)[start].is_some() {
                return map;
            }
        }
        map.clear_a_path(stream);
        map
    }

    /// Turns the cells of a random shortest path from start to goal into ice.
    fn clear_a_path(&mut self, stream: &mut Stream) {
        let (width, height) = (self.width, self.height());
        let (mut x, mut y) = (0, 0);
        while (x, y) != (width - 1, height - 1) {
            self.cells[y * width + x] = LakeCell::Ice;
            let rightwards = width - 1 - x;
            if stream.below(rightwards + height - 1 - y) < rightwards {
                x += 1
            } else {
                y += 1
            }
        }
    }

    /// Turns `count` cells of ice red, drawn evenly from those without which the goal can still be reached; fewer if
    /// there are too few.
    pub(crate) fn redden(&mut self, count: usize, stream: &mut Stream) {
        let ice = |&cell: &usize| self.cells[cell] == LakeCell::Ice && cell != self.start;
        let mut candidates: Vec<usize> = (0..self.cells.len()).filter(ice).collect();
        let mut left = count;
        while left > 0 && !candidates.is_empty() {
            let cell = candidates.swap_remove(stream.below(candidates.len()));
            self.cells[cell] = LakeCell::Red;
            let around = self.distances_to(LakeCell::Goal, |cell| cell == LakeCell::Ice);
            if around[self.start].is_some() {
                left -= 1;
            } else {
                self.cells[cell] = LakeCell::Ice;
            }
        }
    }

    pub(crate) fn height(&self) -> usize {
        self.cells.len() / self.width
    }

    /// Returns the next cell in direction `way` (left 0, down 1, right 2, up 3), or the same cell at the edge.
    pub(crate) fn neighbour(&self, cell: usize, way: usize) -> usize {
        let (x, y) = (cell % self.width, cell / self.width);
        let (x, y) = match way {
            0 => (x.saturating_sub(1), y),
            1 => (x, (y + 1).min(self.height() - 1)),
            2 => ((x + 1).min(self.width - 1), y),
            _ => (x, y.saturating_sub(1)),
        };
        y * self.width + x
    }

    /// Returns for every cell the number of steps to the nearest `wanted` cell over `passable` cells, if there is a way.
    pub(crate) fn distances_to(
        &self,
        wanted: LakeCell,
        passable: impl Fn(LakeCell) -> bool,
    ) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.cells.len()];
        let mut reached = VecDeque::new();
        for cell in self.cells_of(wanted) {
            distances[cell] = Some(0);
            reached.push_back((cell, 0));
        }
        while let Some((cell, distance)) = reached.pop_front() {
            for way in 0..4 {
                let next = self.neighbour(cell, way);
                if distances[next].is_none() && passable(self.cells[next]) {
                    distances[next] = Some(distance + 1);
                    reached.push_back((next, distance + 1));
                }
            }
        }
        distances
    }

    pub(crate) fn cells_of(&self, kind: LakeCell) -> impl Iterator<Item = usize> {
        (0..self.cells.len()).filter(move |&cell| self.cells[cell] == kind)
    }

    /// Returns the rows as [`LakeMap::parse`] reads them, with `R` for red ice.
    pub(crate) fn rows(&self) -> Vec<String> {
        let letter = |(cell, kind): (usize, &LakeCell)| match kind {
            LakeCell::Hole => 'H',
            LakeCell::Goal => 'G',
            LakeCell::Red => 'R',
            LakeCell::Ice if cell == self.start => 'S',
            LakeCell::Ice => 'F',
        };
        let letters: Vec<char> = self.cells.iter().enumerate().map(letter).collect();
        let row = |row: &[char]| row.iter().collect();
        letters.chunks(self.width).map(row).collect()
    }

    /// Returns the key of a state: the rows, with or without red ice, and the number of the player's cell.
    pub(crate) fn key(&self, player: usize, with_red: bool) -> String {
        // The observation does not show the start.
        let hidden: &[char] = if with_red { &['S'] } else { &['S', 'R'] };
        format!("{} {player}", self.rows().join("/").replace(hidden, "F"))
    }
}
