//! The grid, what stands in it, and what an action does. Nothing here is left to chance.

/// Column and row, from (0, 0) at the top left.
pub(super) type Cell = (usize, usize);

/// The colours, by the alphabet.
pub(super) const COLOURS: [&str; 6] = ["blue", "green", "grey", "purple", "red", "yellow"];

/// What can be carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Type {
    Key,
    Ball,
    Box,
}

impl Type {
    pub const ALL: [Type; 3] = [Type::Key, Type::Ball, Type::Box];

    pub fn name(self) -> &'static str {
        ["key", "ball", "box"][self as usize]
    }
}

/// A thing that can be carried, with the place of its colour in [`COLOURS`] and a number that it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Thing {
    pub number: u8,
    pub kind: Type,
    pub colour: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lock {
    Open,
    Closed,
    Locked,
}

impl Lock {
    pub fn name(self) -> &'static str {
        ["open", "closed", "locked"][self as usize]
    }
}

/// What is in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Empty,
    Wall,
    Door { colour: u8, lock: Lock },
    Thing(Thing),
}

impl Place {
    pub fn can_be_entered(self) -> bool {
        matches!(
            self,
            Place::Empty
                | Place::Door {
                    lock: Lock::Open,
                    ..
                }
        )
    }

    pub fn blocks_the_view(self) -> bool {
        match self {
            Place::Wall => true,
            Place::Door { lock, .. } => lock != Lock::Open,
            Place::Empty | Place::Thing(_) => false,
        }
    }
}

/// The actions, in the order of their words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Left,
    Right,
    Forward,
    PickUp,
    Drop,
    Toggle,
}

impl Action {
    pub const ALL: [Action; 6] = [
        Action::Left,
        Action::Right,
        Action::Forward,
        Action::PickUp,
        Action::Drop,
        Action::Toggle,
    ];
}

/// The state of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Grid {
    pub width: usize,
    pub cells: Vec<Place>,
    pub agent: Cell,
    /// Right 0, down 1, left 2, up 3.
    pub way: usize,
    pub carried: Option<Thing>,
}

impl Grid {
    pub fn height(&self) -> usize {
        self.cells.len() / self.width
    }

    /// What is in a cell; beyond the edge there is wall.
    pub fn at(&self, (x, y): Cell) -> Place {
        if x < self.width && y < self.height() {
            self.cells[y * self.width + x]
        } else {
            Place::Wall
        }
    }

    pub fn set(&mut self, (x, y): Cell, place: Place) {
        self.cells[y * self.width + x] = place;
    }

    /// The cell before the agent. A wall is around every grid, so there is one.
    pub fn front(&self) -> Cell {
        ahead(self.agent, self.way)
    }

    pub fn things(&self) -> impl Iterator<Item = (Cell, Thing)> + '_ {
        self.cells
            .iter()
            .enumerate()
            .filter_map(|(cell, place)| match place {
                Place::Thing(thing) => Some(((cell % self.width, cell / self.width), *thing)),
                _ => None,
            })
    }

    pub fn doors(&self) -> impl Iterator<Item = (Cell, u8, Lock)> + '_ {
        self.cells
            .iter()
            .enumerate()
            .filter_map(|(cell, place)| match place {
                Place::Door { colour, lock } => {
                    Some(((cell % self.width, cell / self.width), *colour, *lock))
                }
                _ => None,
            })
    }

    /// Does an action; what cannot be done does nothing.
    pub fn act(&mut self, action: Action) {
        let front = self.front();
        let there = self.at(front);
        match action {
            Action::Left => self.way = (self.way + 3) % 4,
            Action::Right => self.way = (self.way + 1) % 4,
            Action::Forward if there.can_be_entered() => self.agent = front,
            Action::PickUp => {
                if let (Place::Thing(thing), None) = (there, self.carried) {
                    self.carried = Some(thing);
                    self.set(front, Place::Empty);
                }
            }
            Action::Drop if there == Place::Empty => {
                if let Some(thing) = self.carried.take() {
                    self.set(front, Place::Thing(thing));
                }
            }
            Action::Toggle => match there {
                Place::Door { colour, lock } => {
                    let has_key = self
                        .carried
                        .is_some_and(|thing| thing.kind == Type::Key && thing.colour == colour);
                    let lock = match lock {
                        Lock::Open => Lock::Closed,
                        Lock::Closed => Lock::Open,
                        Lock::Locked if has_key => Lock::Open,
                        Lock::Locked => Lock::Locked,
                    };
                    self.set(front, Place::Door { colour, lock });
                }
                // Every box is empty, and gone once it is opened.
                Place::Thing(Thing {
                    kind: Type::Box, ..
                }) => self.set(front, Place::Empty),
                _ => {}
            },
            Action::Forward | Action::Drop => {}
        }
    }
}

/// The cell one step that way.
pub(super) fn ahead((x, y): Cell, way: usize) -> Cell {
    match way {
        0 => (x + 1, y),
        1 => (x, y + 1),
        2 => (x.wrapping_sub(1), y),
        _ => (x, y.wrapping_sub(1)),
    }
}

/// Cells side by side, not across a corner.
pub(super) fn are_neighbours(one: Cell, other: Cell) -> bool {
    one.0.abs_diff(other.0) + one.1.abs_diff(other.1) == 1
}
