//! What is asked for.

use super::grid::{COLOURS, Cell, Grid, Place, Thing, Type, are_neighbours};

/// Where from the agent's first place, as it looks then.
pub(super) const SIDES: [&str; 4] = [
    "on your left",
    "on your right",
    "in front of you",
    "behind you",
];

/// Things as they are spoken of.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Meant {
    pub kind: Option<Type>,
    pub colour: Option<u8>,
    /// A place in [`SIDES`].
    pub side: Option<usize>,
    /// The numbers of the things that this fits at the start. A side is settled then, and so is who is meant.
    pub numbers: Vec<u8>,
}

impl Meant {
    pub fn new(grid: &Grid, kind: Option<Type>, colour: Option<u8>, side: Option<usize>) -> Meant {
        let fits = |(cell, thing): &(Cell, Thing)| {
            kind.is_none_or(|kind| thing.kind == kind)
                && colour.is_none_or(|colour| thing.colour == colour)
                && side.is_none_or(|side| lies(grid, *cell, side))
        };
        let mut numbers: Vec<u8> = grid
            .things()
            .filter(fits)
            .map(|(_, thing)| thing.number)
            .collect();
        numbers.sort_unstable();
        Meant {
            kind,
            colour,
            side,
            numbers,
        }
    }

    pub fn includes(&self, thing: Thing) -> bool {
        self.numbers.contains(&thing.number)
    }

    fn told(&self) -> String {
        let article = if self.numbers.len() > 1 { "a" } else { "the" };
        let mut words = vec![article];
        words.extend(self.colour.map(|colour| COLOURS[usize::from(colour)]));
        words.push(self.kind.map_or("object", Type::name));
        words.extend(self.side.map(|side| SIDES[side]));
        words.join(" ")
    }
}

/// Whether a cell lies on that side of the agent.
fn lies(grid: &Grid, cell: Cell, side: usize) -> bool {
    let (dx, dy) = (
        cell.0 as isize - grid.agent.0 as isize,
        cell.1 as isize - grid.agent.1 as isize,
    );
    // Turned so that the agent looks to the right.
    let (ahead, right) = match grid.way {
        0 => (dx, dy),
        1 => (dy, -dx),
        2 => (-dx, -dy),
        _ => (-dy, dx),
    };
    [right < 0, right > 0, ahead > 0, ahead < 0][side]
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mission {
    GoTo(Meant),
    PickUp(Meant),
    PutNext(Meant, Meant),
    OpenTheDoor,
}

impl Mission {
    pub fn told(&self, other_words: bool) -> String {
        match (self, other_words) {
            (Mission::GoTo(what), false) => format!("go to {}", what.told()),
            (Mission::GoTo(what), true) => format!("stand before {}", what.told()),
            (Mission::PickUp(what), false) => format!("pick up {}", what.told()),
            (Mission::PickUp(what), true) => format!("get hold of {}", what.told()),
            (Mission::PutNext(what, to), false) => {
                format!("put {} next to {}", what.told(), to.told())
            }
            (Mission::PutNext(what, to), true) => {
                format!("bring {} beside {}", what.told(), to.told())
            }
            (Mission::OpenTheDoor, false) => "open the door".to_owned(),
            (Mission::OpenTheDoor, true) => "get the door unlocked".to_owned(),
        }
    }

    /// Whether an action, which led from `before` to `after`, has done what is asked for.
    pub fn done(&self, before: &Grid, after: &Grid) -> bool {
        match self {
            Mission::GoTo(what) => match after.at(after.front()) {
                Place::Thing(thing) => what.includes(thing),
                _ => false,
            },
            Mission::PickUp(what) => {
                before.carried.is_none() && after.carried.is_some_and(|thing| what.includes(thing))
            }
            Mission::PutNext(what, to) => {
                let put = before
                    .carried
                    .filter(|thing| after.carried.is_none() && what.includes(*thing));
                put.is_some()
                    && after.things().any(|(cell, thing)| {
                        to.includes(thing) && are_neighbours(cell, after.front())
                    })
            }
            Mission::OpenTheDoor => {
                use super::grid::Lock::Open;
                let open = |grid: &Grid| grid.doors().filter(|(_, _, lock)| *lock == Open).count();
                open(after) > open(before)
            }
        }
    }

    /// The things that it is about, by number.
    pub fn numbers(&self) -> Vec<u8> {
        match self {
            Mission::GoTo(what) | Mission::PickUp(what) => what.numbers.clone(),
            Mission::PutNext(what, to) => [&what.numbers[..], &to.numbers[..]].concat(),
            Mission::OpenTheDoor => Vec::new(),
        }
    }
}
