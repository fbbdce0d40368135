//! A Sokoban level, where everything stands in it, and what a step does.

use std::sync::OnceLock;

/// The most boxes in a level, and the longest side: a state is then a few bytes.
pub(super) const MOST_BOXES: usize = 8;
pub(super) const LONGEST_SIDE: usize = 15;

/// No cell has this number.
const NOWHERE: u8 = u8::MAX;

/// What does not move.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub width: usize,
    /// By cell, row by row from the top left, whether one can be there.
    pub floor: Vec<bool>,
    pub targets: Vec<bool>,
    /// Made when first asked for.
    pub pushes: OnceLock<Vec<Option<u16>>>,
}

/// What moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub player: u8,
    /// In the order of their cells, which are those of the boxes and behind them [`NOWHERE`]: equal boxes, equal states.
    boxes: [u8; MOST_BOXES],
}

/// Levels of a file, each with the state that it starts from.
pub(super) type Levels = Vec<(Level, State)>;

impl State {
    /// `boxes` are at most [`MOST_BOXES`].
    pub fn new(player: usize, boxes: &[usize]) -> State {
        let mut cells = [NOWHERE; MOST_BOXES];
        for (cell, &place) in cells.iter_mut().zip(boxes) {
            *cell = place as u8;
        }
        cells.sort_unstable();
        State {
            player: player as u8,
            boxes: cells,
        }
    }

    pub fn boxes(&self) -> impl Iterator<Item = usize> + '_ {
        let there = self.boxes.iter().take_while(|&&cell| cell != NOWHERE);
        there.map(|&cell| usize::from(cell))
    }

    pub fn has_box(&self, cell: usize) -> bool {
        self.boxes.contains(&(cell as u8))
    }

    /// The same with the box that was on one cell on another.
    fn with_box_moved(&self, from: usize, to: usize) -> State {
        let mut boxes = self.boxes;
        if let Some(place) = boxes.iter().position(|&cell| usize::from(cell) == from) {
            boxes[place] = to as u8;
        }
        boxes.sort_unstable();
        State { boxes, ..*self }
    }
}

impl Level {
    /// The cell one step that way (up 0, down 1, left 2, right 3), if it is floor.
    pub fn neighbour(&self, cell: usize, way: usize) -> Option<usize> {
        let x = cell % self.width;
        let next = match way {
            0 => cell.checked_sub(self.width)?,
            1 => cell + self.width,
            2 if x > 0 => cell - 1,
            3 if x + 1 < self.width => cell + 1,
            _ => return None,
        };
        self.floor
            .get(next)
            .is_some_and(|&floor| floor)
            .then_some(next)
    }

    /// The state after a step, unless a wall or a second box is in the way.
    pub fn step(&self, state: &State, way: usize) -> Option<State> {
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

    /// The state after a step of reverse play: the player goes back, and may pull the box behind it along. The inverse
    /// of [`Level::step`] the other way.
    pub fn back(&self, state: &State, way: usize, pull: bool) -> Option<State> {
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

    /// How many boxes are on targets.
    pub fn on_targets(&self, state: &State) -> usize {
        state.boxes().filter(|&cell| self.targets[cell]).count()
    }

    pub fn solved(&self, state: &State) -> bool {
        state.boxes().all(|cell| self.targets[cell])
    }

    /// By cell how many pushes a box there needs at least, were it alone in the level; `None` where it is lost.
    pub fn pushes(&self) -> &[Option<u16>] {
        self.pushes.get_or_init(|| {
            let mut pushes: Vec<Option<u16>> = self
                .targets
                .iter()
                .map(|&target| target.then_some(0))
                .collect();
            let mut reached: Vec<usize> = (0..pushes.len())
                .filter(|&cell| self.targets[cell])
                .collect();
            let mut place = 0;
            while let Some(&cell) = reached.get(place) {
                place += 1;
                for way in 0..4 {
                    // The box came from the cell before, and the player pushed from the one before that.
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
