//! Sokoban levels, positions in them, and steps.

use std::sync::{Arc, OnceLock};

/// With these limits a position has a few bytes.
pub(super) const MOST_BOXES: usize = 8;
pub(super) const LONGEST_LEVEL_SIDE: usize = 15;

/// The cell of a box that is not there.
const NOWHERE: u8 = u8::MAX;

/// The fixed parts of a level.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(crate) width: usize,
    /// Whether each cell, row by row from the top left, is floor.
    pub(crate) floor: Vec<bool>,
    pub(crate) targets: Vec<bool>,
    /// Made on demand.
    pub(crate) pushes: OnceLock<Vec<Option<u16>>>,
}

/// The cells of the player and the boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Position {
    pub(crate) player: u8,
    /// In ascending order, then [`NOWHERE`]: positions with equal boxes are equal.
    boxes: [u8; MOST_BOXES],
}

/// The levels of a file with their starts.
pub(super) type Levels = Vec<(Arc<Level>, Position)>;

impl Position {
    /// Makes a position. `boxes` has at most [`MOST_BOXES`] cells.
    pub(crate) fn new(player: usize, boxes: &[usize]) -> Position {
        let mut cells = [NOWHERE; MOST_BOXES];
        for (cell, &place) in cells.iter_mut().zip(boxes) {
            *cell = place as u8;
        }
        cells.sort_unstable();
        Position {
            player: player as u8,
            boxes: cells,
        }
    }

    pub(crate) fn boxes(&self) -> impl Iterator<Item = usize> + '_ {
        let there = self.boxes.iter().take_while(|&&cell| cell != NOWHERE);
        there.map(|&cell| usize::from(cell))
    }

    pub(crate) fn has_box(&self, cell: usize) -> bool {
        self.boxes.contains(&(cell as u8))
    }

    fn with_box_moved(&self, from: usize, to: usize) -> Position {
        let mut boxes = self.boxes;
        if let Some(place) = boxes.iter().position(|&cell| usize::from(cell) == from) {
            boxes[place] = to as u8;
        }
        boxes.sort_unstable();
        Position { boxes, ..*self }
    }
}

impl Level {
    /// Returns the next cell in direction `way` (up 0, down 1, left 2, right 3), if it is floor.
    pub(crate) fn neighbour(&self, cell: usize, way: usize) -> Option<usize> {
        let x = cell % self.width;
        let next = match way {
            0 => cell.checked_sub(self.width)?,
            1 => cell + self.width,
            2 if x > 0 => cell - 1,
            3 if x + 1 < self.width => cell + 1,
            _ => return None,
        };
        (self.floor.get(next) == Some(&true)).then_some(next)
    }

    /// Returns the position after a step, unless a wall or a second box is in the way.
    pub(crate) fn step(&self, state: &Position, way: usize) -> Option<Position> {
        let next = self.neighbour(usize::from(state.player), way)?;
        let mut after = *state;
        if state.has_box(next) {
            let beyond = self.neighbour(next, way)?;
            if state.has_box(beyond) {
                return None;
            }
            after = state.with_box_moved(next, beyond);
        }
        after.player = next as u8;
        Some(after)
    }

    /// Returns the position after a step of reverse play, in which the player can pull the box behind it: the inverse of
    /// [`Level::step`] in the opposite direction.
    pub(crate) fn back(&self, state: &Position, way: usize, pull: bool) -> Option<Position> {
        let player = usize::from(state.player);
        let next = self.neighbour(player, way)?;
        if state.has_box(next) {
            return None;
        }
        let mut after = *state;
        if pull {
            let behind = self.neighbour(player, opposite(way))?;
            if !state.has_box(behind) {
                return None;
            }
            after = state.with_box_moved(behind, player);
        }
        after.player = next as u8;
        Some(after)
    }

    pub(crate) fn on_targets(&self, state: &Position) -> usize {
        state.boxes().filter(|&cell| self.targets[cell]).count()
    }

    pub(crate) fn solved(&self, state: &Position) -> bool {
        state.boxes().all(|cell| self.targets[cell])
    }

    /// Returns for each cell the fewest pushes that a box there needs if it is alone; `None` if it is lost.
    pub(crate) fn pushes(&self) -> &[Option<u16>] {
        self.pushes.get_or_init(|| {
            let at_target = |&target: &bool| target.then_some(0);
            let mut pushes: Vec<Option<u16>> = self.targets.iter().map(at_target).collect();
            let cells = 0..pushes.len();
            let mut reached: Vec<usize> = cells.filter(|&cell| self.targets[cell]).collect();
            let mut place = 0;
            while let Some(&cell) = reached.get(place) {
                place += 1;
                for way in 0..4 {
                    // The box came from the previous cell, and the player pushed from the cell before that.
                    let Some(before) = self.neighbour(cell, opposite(way)) else {
                        continue;
                    };
                    if pushes[before].is_none() && self.neighbour(before, opposite(way)).is_some() {
                        pushes[before] = pushes[cell].map(|pushes| pushes + 1);
                        reached.push(before);
                    }
                }
            }
            pushes
        })
    }
}

pub(super) fn opposite(way: usize) -> usize {
    way ^ 1
}
