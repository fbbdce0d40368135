//! Drawing houses and missions of the nine tasks, each after the level of BabyAI with its name.

use super::grid::{COLOURS, Content, Grid, Lock, Thing, ThingKind, ahead};
use super::mission::{Description, Mission, SIDES};
use super::options::RoomsTask;
use crate::picture::{Cell, distance};
use crate::rng::Stream;

/// Draws the house of a task at its start, and the mission.
pub(super) fn draw(task: RoomsTask, stream: &mut Stream) -> (Grid, Mission) {
    loop {
        // A few attempts fail because things block each other or there is no room.
        if let Some(drawn) = attempt(task, stream) {
            return drawn;
        }
    }
}

fn attempt(task: RoomsTask, stream: &mut Stream) -> Option<(Grid, Mission)> {
    let (size, columns, rows) = match task {
        RoomsTask::GotoLocal | RoomsTask::PutNextLocal => (5, 1, 1),
        RoomsTask::GotoMaze => (4, 2, 2),
        RoomsTask::PickupLoc => (8, 1, 1),
        RoomsTask::PickupDist => (7, 1, 1),
        RoomsTask::UnlockLocal => (8, 3, 3),
        RoomsTask::UnlockPickup | RoomsTask::BlockedUnlockPickup => (6, 2, 1),
        RoomsTask::UnlockToUnlock => (6, 3, 1),
    };
    let mut house = House::new(size, columns, rows, stream);
    let mission = match task {
        RoomsTask::GotoLocal | RoomsTask::GotoMaze => {
            house.place_agent(None)?;
            house.connect_all();
            let count = if task == RoomsTask::GotoLocal { 2 } else { 1 };
            let things = house.distract(None, count, false)?;
            let thing = things[house.stream.below(things.len())];
            Mission::GoTo(house.meant(Some(thing.kind), Some(thing.colour), None))
        }
        RoomsTask::PickupLoc => {
            house.distract(None, 8, false)?;
            house.place_agent(None)?;
            Mission::PickUp(house.any_meant()?)
        }
        RoomsTask::PickupDist => {
            let things = house.distract(None, 5, true)?;
            house.place_agent(None)?;
            let thing = things[house.stream.below(things.len())];
            let by = house.stream.below(3);
            let (kind, colour) = (Some(thing.kind), Some(thing.colour));
            Mission::PickUp(house.meant(kind.filter(|_| by != 1), colour.filter(|_| by != 0), None))
        }
        RoomsTask::PutNextLocal => {
            house.place_agent(None)?;
            let mut things = house.distract(None, 3, true)?;
            let mut take = || {
                let place = house.stream.below(things.len());
                things.swap_remove(place)
            };
            let [what, to] = [take(), take()];
            let cell = |thing: Thing| {
                let found = house.grid.things().find(|(_, other)| *other == thing);
                found.map(|(cell, _)| cell)
            };
            if distance(cell(what)?, cell(to)?) == 1 {
                return None;
            }
            let meant = |thing: Thing| house.meant(Some(thing.kind), Some(thing.colour), None);
            Mission::PutNext(meant(what), meant(to))
        }
        RoomsTask::UnlockLocal => {
            let (side, colour) = (house.stream.below(4), house.colour());
            house.add_door((1, 1), side, colour, Lock::Locked);
            house.add((1, 1), ThingKind::Key, colour)?;
            house.distract(Some((1, 1)), 3, true)?;
            house.place_agent(Some((1, 1)))?;
            Mission::OpenTheDoor
        }
        RoomsTask::UnlockPickup | RoomsTask::BlockedUnlockPickup => {
            let (of_box, colour) = (house.colour(), house.colour());
            house.add((1, 0), ThingKind::Box, of_box)?;
            let door = house.add_door((0, 0), 0, colour, Lock::Locked);
            let blocked = task == RoomsTask::BlockedUnlockPickup;
            if blocked {
                let ball = house.thing(ThingKind::Ball);
                house.grid.set((door.0 - 1, door.1), Content::Thing(ball));
            }
            house.add((0, 0), ThingKind::Key, colour)?;
            house.place_agent(Some((0, 0)))?;
            Mission::PickUp(house.meant(
                Some(ThingKind::Box),
                Some(of_box).filter(|_| !blocked),
                None,
            ))
        }
        RoomsTask::UnlockToUnlock => {
            let one = house.colour();
            let other =
                (one + 1 + house.stream.below(COLOURS.len() - 1) as u8) % COLOURS.len() as u8;
            house.add_door((0, 0), 0, one, Lock::Locked);
            house.add((2, 0), ThingKind::Key, one)?;
            house.add_door((1, 0), 0, other, Lock::Locked);
            house.add((1, 0), ThingKind::Key, other)?;
            let of_ball = house.colour();
            house.add((0, 0), ThingKind::Ball, of_ball)?;
            house.place_agent(Some((1, 0)))?;
            Mission::PickUp(house.meant(Some(ThingKind::Ball), None, None))
        }
    };
    (task == RoomsTask::BlockedUnlockPickup
        || house.can_reach(|it| matches!(it, Content::Thing(_) | Content::Door(..))))
    .then_some((house.grid, mission))
}

/// Column and row of a room.
type RoomIndex = (usize, usize);

struct House<'a> {
    grid: Grid,
    /// Cells per side of a room with both walls, which neighbouring rooms share.
    size: usize,
    columns: usize,
    rows: usize,
    /// The cells of possible doors to the right and down for each room.
    openings: Vec<[Cell; 2]>,
    made: u8,
    stream: &'a mut Stream,
}

impl<'a> House<'a> {
    fn new(size: usize, columns: usize, rows: usize, stream: &'a mut Stream) -> House<'a> {
        let step = size - 1;
        let (width, height) = (step * columns + 1, step * rows + 1);
        let wall = |cell: usize| {
            (cell % width).is_multiple_of(step) || (cell / width).is_multiple_of(step)
        };
        let content = |cell| match wall(cell) {
            true => Content::Wall,
            false => Content::Empty,
        };
        let openings = (0..columns * rows).map(|room| {
            let (x, y) = (room % columns * step, room / columns * step);
            [
                (x + step, y + 1 + stream.below(size - 2)),
                (x + 1 + stream.below(size - 2), y + step),
            ]
        });
        House {
            openings: openings.collect(),
            grid: Grid {
                width,
                cells: (0..width * height).map(content).collect(),
                // Things stay away from the middle until the agent is placed.
                agent: (columns / 2 * step + size / 2, rows / 2 * step + size / 2),
                way: 0,
                carried: None,
            },
            size,
            columns,
            rows,
            made: 0,
            stream,
        }
    }

    fn colour(&mut self) -> u8 {
        self.stream.below(COLOURS.len()) as u8
    }

    /// Makes a thing of a drawn colour.
    fn thing(&mut self, kind: ThingKind) -> Thing {
        self.made += 1;
        Thing {
            number: self.made,
            kind,
            colour: self.colour(),
        }
    }

    /// Returns the empty cells of a room.
    fn free(&self, (column, row): RoomIndex) -> Vec<Cell> {
        let (x, y) = (column * (self.size - 1), row * (self.size - 1));
        let inside = 1..self.size - 1;
        let cells = inside
            .clone()
            .flat_map(|dy| inside.clone().map(move |dx| (x + dx, y + dy)));
        cells
            .filter(|&cell| self.grid.at(cell) == Content::Empty && cell != self.grid.agent)
            .collect()
    }

    fn any_room(&mut self) -> RoomIndex {
        let column = self.stream.below(self.columns);
        (column, self.stream.below(self.rows))
    }

    /// Puts a thing into a room, not beside the agent.
    fn add(&mut self, room: RoomIndex, kind: ThingKind, colour: u8) -> Option<Thing> {
        let mut cells = self.free(room);
        cells.retain(|&cell| distance(cell, self.grid.agent) != 1);
        if cells.is_empty() {
            return None;
        }
        let thing = Thing {
            colour,
            ..self.thing(kind)
        };
        self.grid
            .set(cells[self.stream.below(cells.len())], Content::Thing(thing));
        Some(thing)
    }

    /// Adds drawn things to a room, or each to a drawn room. With `unique` no two things have the same kind and colour.
    fn distract(
        &mut self,
        room: Option<RoomIndex>,
        count: usize,
        unique: bool,
    ) -> Option<Vec<Thing>> {
        let mut added = Vec::new();
        while added.len() < count {
            let (kind, colour) = (ThingKind::ALL[self.stream.below(3)], self.colour());
            let same = |(_, thing): (Cell, Thing)| (thing.kind, thing.colour) == (kind, colour);
            if unique && self.grid.things().any(same) {
                continue;
            }
            let room = room.unwrap_or_else(|| self.any_room());
            added.push(self.add(room, kind, colour)?);
        }
        Some(added)
    }

    /// Puts a door into a wall (right 0, down 1, left 2, up 3) between two rooms.
    fn add_door(&mut self, (column, row): RoomIndex, side: usize, colour: u8, lock: Lock) -> Cell {
        let (column, row) = match side {
            2 => (column - 1, row),
            3 => (column, row - 1),
            _ => (column, row),
        };
        let cell = self.openings[row * self.columns + column][side % 2];
        self.grid.set(cell, Content::Door(colour, lock));
        cell
    }

    /// Adds closed doors in drawn walls until every room can be reached.
    fn connect_all(&mut self) {
        while !self.can_reach(|content| content != Content::Wall) {
            let ((column, row), side) = (self.any_room(), self.stream.below(2));
            let next = [column + 1 < self.columns, row + 1 < self.rows];
            let opening = self.openings[row * self.columns + column][side];
            if next[side] && self.grid.at(opening) == Content::Wall {
                let colour = self.colour();
                self.add_door((column, row), side, colour, Lock::Closed);
            }
        }
    }

    /// Puts the agent into a room, or into a drawn room. Fails if the cell in front of it has a thing or a door.
    fn place_agent(&mut self, room: Option<RoomIndex>) -> Option<()> {
        let room = room.unwrap_or_else(|| self.any_room());
        self.grid.agent = (0, 0);
        let cells = self.free(room);
        if cells.is_empty() {
            return None;
        }
        self.grid.agent = cells[self.stream.below(cells.len())];
        self.grid.way = self.stream.below(4);
        let front = self.grid.at(self.grid.front());
        matches!(front, Content::Empty | Content::Wall).then_some(())
    }

    /// Whether every cell of a wanted content can be reached without moving another thing if all doors are open.
    fn can_reach(&self, wanted: impl Fn(Content) -> bool) -> bool {
        let mut reached = vec![self.grid.agent];
        let mut place = 0;
        while let Some(&cell) = reached.get(place) {
            place += 1;
            if !matches!(self.grid.at(cell), Content::Empty | Content::Door(..)) {
                continue;
            }
            let next = (0..4).map(|way| ahead(cell, way));
            let next: Vec<Cell> = next
                .filter(|&next| self.grid.at(next) != Content::Wall && !reached.contains(&next))
                .collect();
            reached.extend(next);
        }
        let mut contents = self.grid.contents();
        contents.all(|(cell, content)| !wanted(content) || reached.contains(&cell))
    }

    fn meant(
        &self,
        kind: Option<ThingKind>,
        colour: Option<u8>,
        side: Option<usize>,
    ) -> Description {
        Description::new(&self.grid, kind, colour, side)
    }

    /// Draws a description that fits at least one thing, with a side in half of the draws.
    fn any_meant(&mut self) -> Option<Description> {
        let meant = (0..100).map(|_| {
            let stream = &mut *self.stream;
            let colour = stream.below(COLOURS.len() + 1).checked_sub(1);
            let kind = ThingKind::ALL[stream.below(3)];
            let side = stream.chance(0.5).then(|| stream.below(SIDES.len()));
            self.meant(Some(kind), colour.map(|colour| colour as u8), side)
        });
        meant.into_iter().find(|meant| !meant.numbers.is_empty())
    }
}
