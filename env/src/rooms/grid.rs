//! The grid, its contents and the effects of acts. Nothing here is random.

use crate::picture::Cell;

/// The colours in alphabetical order.
pub(super) const COLOURS: [&str; 6] = ["blue", "green", "grey", "purple", "red", "yellow"];

/// Returns the name of a colour, an index into [`COLOURS`].
pub(super) fn colour_name(colour: u8) -> &'static str {
    COLOURS[usize::from(colour)]
}

/// The kinds of things that can be carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ThingKind {
    Key,
    Ball,
    Box,
}

impl ThingKind {
    pub(crate) const ALL: [ThingKind; 3] = [ThingKind::Key, ThingKind::Ball, ThingKind::Box];

    pub(crate) fn name(self) -> &'static str {
        ["key", "ball", "box"][self as usize]
    }
}

/// A thing that can be carried. `colour` is an index into [`COLOURS`]; `number` never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Thing {
    pub(crate) number: u8,
    pub(crate) kind: ThingKind,
    pub(crate) colour: u8,
}

impl Thing {
    pub(crate) fn is_key_of(self, colour: u8) -> bool {
        (self.kind, self.colour) == (ThingKind::Key, colour)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Lock {
    Open,
    Closed,
    Locked,
}

impl Lock {
    pub(crate) fn name(self) -> &'static str {
        ["open", "closed", "locked"][self as usize]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Content {
    Empty,
    Wall,
    /// A door of a colour.
    Door(u8, Lock),
    Thing(Thing),
}

impl Content {
    pub(crate) fn can_be_entered(self) -> bool {
        matches!(self, Content::Empty | Content::Door(_, Lock::Open))
    }

    pub(crate) fn blocks_the_view(self) -> bool {
        match self {
            Content::Wall => true,
            Content::Door(_, lock) => lock != Lock::Open,
            Content::Empty | Content::Thing(_) => false,
        }
    }
}

/// The acts in the order of their words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Left,
    Right,
    Forward,
    PickUp,
    Drop,
    Toggle,
}

impl Act {
    pub(crate) const ALL: [Act; 6] = {
        use Act::{Drop, Forward, Left, PickUp, Right, Toggle};
        [Left, Right, Forward, PickUp, Drop, Toggle]
    };
}

/// The state of the house. Cells are counted from (0, 0) at the top left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Grid {
    pub(crate) width: usize,
    pub(crate) cells: Vec<Content>,
    pub(crate) agent: Cell,
    /// Right 0, down 1, left 2, up 3.
    pub(crate) way: usize,
    pub(crate) carried: Option<Thing>,
}

impl Grid {
    pub(crate) fn height(&self) -> usize {
        self.cells.len() / self.width
    }

    /// Returns the content of a cell; beyond the edge it is wall.
    pub(crate) fn at(&self, (x, y): Cell) -> Content {
        if x < self.width && y < self.height() {
            self.cells[y * self.width + x]
        } else {
            Content::Wall
        }
    }

    pub(crate) fn set(&mut self, (x, y): Cell, content: Content) {
        self.cells[y * self.width + x] = content;
    }

    /// Returns the cell in front of the agent. Walls surround the grid, so it exists.
    pub(crate) fn front(&self) -> Cell {
        ahead(self.agent, self.way)
    }

    pub(crate) fn contents(&self) -> impl Iterator<Item = (Cell, Content)> + '_ {
        let cells = self.cells.iter().enumerate();
        cells.map(|(cell, content)| ((cell % self.width, cell / self.width), *content))
    }

    pub(crate) fn things(&self) -> impl Iterator<Item = (Cell, Thing)> + '_ {
        self.contents().filter_map(|(cell, content)| match content {
            Content::Thing(thing) => Some((cell, thing)),
            _ => None,
        })
    }

    pub(crate) fn doors(&self) -> impl Iterator<Item = (Cell, u8, Lock)> + '_ {
        self.contents().filter_map(|(cell, content)| match content {
            Content::Door(colour, lock) => Some((cell, colour, lock)),
            _ => None,
        })
    }

    /// Performs an act. An impossible act has no effect.
    pub(crate) fn perform(&mut self, act: Act) {
        let front = self.front();
        let there = self.at(front);
        match act {
            Act::Left => self.way = (self.way + 3) % 4,
            Act::Right => self.way = (self.way + 1) % 4,
            Act::Forward if there.can_be_entered() => self.agent = front,
            Act::PickUp => {
                if let (Content::Thing(thing), None) = (there, self.carried) {
                    self.carried = Some(thing);
                    self.set(front, Content::Empty);
                }
            }
            Act::Drop if there == Content::Empty => {
                if let Some(thing) = self.carried.take() {
                    self.set(front, Content::Thing(thing));
                }
            }
            Act::Toggle => match there {
                Content::Door(colour, lock) => {
                    let has_key = self.carried.is_some_and(|thing| thing.is_key_of(colour));
                    let lock = match lock {
                        Lock::Open => Lock::Closed,
                        Lock::Locked if !has_key => Lock::Locked,
                        _ => Lock::Open,
                    };
                    self.set(front, Content::Door(colour, lock));
                }
                // Every box is empty and disappears when it is opened.
                Content::Thing(thing) if thing.kind == ThingKind::Box => {
                    self.set(front, Content::Empty);
                }
                _ => {}
            },
            Act::Forward | Act::Drop => {}
        }
    }
}

/// Returns the next cell in direction `way` (right 0, down 1, left 2, up 3).
pub(super) fn ahead((x, y): Cell, way: usize) -> Cell {
    match way {
        0 => (x + 1, y),
        1 => (x, y + 1),
        2 => (x.wrapping_sub(1), y),
        _ => (x, y.wrapping_sub(1)),
    }
}
