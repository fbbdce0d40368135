//! Missions and the things that they describe.

use super::grid::{Content, Grid, Lock, Thing, ThingKind, colour_name};
use crate::options::Phrasing;
use crate::picture::{Cell, distance};

/// The sides of the agent in its first pose.
pub(super) const SIDES: [&str; 4] = [
    "on your left",
    "on your right",
    "in front of you",
    "behind you",
];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Description {
    pub(crate) kind: Option<ThingKind>,
    pub(crate) colour: Option<u8>,
    /// An index into [`SIDES`].
    pub(crate) side: Option<usize>,
    /// The numbers of the things that it fits at the start.
    pub(crate) numbers: Vec<u8>,
}

impl Description {
    pub(crate) fn new(
        grid: &Grid,
        kind: Option<ThingKind>,
        colour: Option<u8>,
        side: Option<usize>,
    ) -> Description {
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
        Description {
            kind,
            colour,
            side,
            numbers,
        }
    }

    pub(crate) fn includes(&self, thing: Thing) -> bool {
        self.numbers.contains(&thing.number)
    }

    fn in_words(&self) -> String {
        let article = if self.numbers.len() > 1 { "a" } else { "the" };
        let mut words = vec![article];
        words.extend(self.colour.map(colour_name));
        words.push(self.kind.map_or("object", ThingKind::name));
        words.extend(self.side.map(|side| SIDES[side]));
        words.join(" ")
    }
}

fn lies(grid: &Grid, cell: Cell, side: usize) -> bool {
    let dx = cell.0 as isize - grid.agent.0 as isize;
    let dy = cell.1 as isize - grid.agent.1 as isize;
    // Rotated so that the agent looks to the right.
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
    GoTo(Description),
    PickUp(Description),
    PutNext(Description, Description),
    OpenTheDoor,
}

impl Mission {
    pub(crate) fn in_words(&self, wording: Phrasing) -> String {
        use Phrasing::{Other, Usual};
        match (self, wording) {
            (Mission::GoTo(what), Usual) => format!("go to {}", what.in_words()),
            (Mission::GoTo(what), Other) => format!("stand before {}", what.in_words()),
            (Mission::PickUp(what), Usual) => format!("pick up {}", what.in_words()),
            (Mission::PickUp(what), Other) => format!("get hold of {}", what.in_words()),
            (Mission::PutNext(what, to), Usual) => {
                format!("put {} next to {}", what.in_words(), to.in_words())
            }
            (Mission::PutNext(what, to), Other) => {
                format!("bring {} beside {}", what.in_words(), to.in_words())
            }
            (Mission::OpenTheDoor, Usual) => "open the door".to_owned(),
            (Mission::OpenTheDoor, Other) => "get the door unlocked".to_owned(),
        }
    }

    /// Whether the act that led from `before` to `after` has done the mission.
    pub(crate) fn done(&self, before: &Grid, after: &Grid) -> bool {
        match self {
            Mission::GoTo(what) => match after.at(after.front()) {
                Content::Thing(thing) => what.includes(thing),
                _ => false,
            },
            Mission::PickUp(what) => {
                before.carried.is_none() && after.carried.is_some_and(|thing| what.includes(thing))
            }
            Mission::PutNext(what, to) => {
                let put = before.carried.is_some_and(|thing| what.includes(thing));
                put && after.carried.is_none()
                    && after.things().any(|(cell, thing)| {
                        to.includes(thing) && distance(cell, after.front()) == 1
                    })
            }
            Mission::OpenTheDoor => {
                let is_open = |(.., lock): &(Cell, u8, Lock)| *lock == Lock::Open;
                let open = |grid: &Grid| grid.doors().filter(is_open).count();
                open(after) > open(before)
            }
        }
    }

    pub(crate) fn numbers(&self) -> Vec<u8> {
        match self {
            Mission::GoTo(what) | Mission::PickUp(what) => what.numbers.clone(),
            Mission::PutNext(what, to) => [&what.numbers[..], &to.numbers[..]].concat(),
            Mission::OpenTheDoor => Vec::new(),
        }
    }
}
