//! Drawing the nine tasks, each after the level of BabyAI that it is named for.

use super::grid::{COLOURS, Cell, Grid, Lock, Place, Thing, Type, ahead, are_neighbours};
use super::mission::{Meant, Mission, SIDES};
use super::options::Task;
use crate::rng::Stream;

/// A task's world at its start, and what is asked for.
pub(super) fn draw(task: Task, stream: &mut Stream) -> (Grid, Mission) {
    loop {
        // A draw comes to nothing where things shut each other in, or there is no room; most do not.
        if let Some(drawn) = attempt(task, stream) {
            return drawn;
        }
    }
}

fn attempt(task: Task, stream: &mut Stream) -> Option<(Grid, Mission)> {
    let (size, columns, rows) = match task {
        Task::GotoLocal | Task::PutNextLocal => (5, 1, 1),
        Task::GotoMaze => (4, 2, 2),
        Task::PickupLoc => (8, 1, 1),
        Task::PickupDist => (7, 1, 1),
        Task::UnlockLocal => (8, 3, 3),
        Task::UnlockPickup | Task::BlockedUnlockPickup => (6, 2, 1),
        Task::UnlockToUnlock => (6, 3, 1),
    };
    let mut house = House::new(size, columns, rows, stream);
    let mission = match task {
        Task::GotoLocal | Task::GotoMaze => {
            house.place_agent(None)?;
            house.connect_all();
            let count = if task == Task::GotoLocal { 2 } else { 1 };
            let things = house.distract(None, count, false)?;
            let thing = things[house.stream.below(things.len())];
            Mission::GoTo(house.meant(Some(thing.kind), Some(thing.colour), None))
        }
        Task::PickupLoc => {
            house.distract(None, 8, false)?;
            house.place_agent(None)?;
            Mission::PickUp(house.meant_somehow()?)
        }
        Task::PickupDist => {
            let things = house.distract(None, 5, true)?;
            house.place_agent(None)?;
            let thing = things[house.stream.below(things.len())];
            let by = house.stream.below(3);
            let (kind, colour) = (Some(thing.kind), Some(thing.colour));
            Mission::PickUp(house.meant(kind.filter(|_| by != 1), colour.filter(|_| by != 0), None))
        }
        Task::PutNextLocal => {
            house.place_agent(None)?;
            let mut things = house.distract(None, 3, true)?;
            let mut take = || {
                let place = house.stream.below(things.len());
                things.swap_remove(place)
            };
            let [what, to] = [take(), take()];
            let cell = |thing: Thing| {
                house
                    .grid
                    .things()
                    .find(|(_, other)| *other == thing)
                    .map(|(cell, _)| cell)
            };
            if are_neighbours(cell(what)?, cell(to)?) {
                return None;
            }
            let meant = |thing: Thing| house.meant(Some(thing.kind), Some(thing.colour), None);
            Mission::PutNext(meant(what), meant(to))
        }
        Task::UnlockLocal => {
            let (side, colour) = (house.stream.below(4), house.colour());
            house.add_door((1, 1), side, colour, Lock::Locked);
            house.add((1, 1), Type::Key, colour)?;
            house.distract(Some((1, 1)), 3, true)?;
            house.place_agent(Some((1, 1)))?;
            Mission::OpenTheDoor
        }
        Task::UnlockPickup | Task::BlockedUnlockPickup => {
            let (of_box, colour) = (house.colour(), house.colour());
            house.add((1, 0), Type::Box, of_box)?;
            let door = house.add_door((0, 0), 0, colour, Lock::Locked);
            let blocked = task == Task::BlockedUnlockPickup;
            if blocked {
                let ball = house.thing(Type::Ball);
                house.grid.set((door.0 - 1, door.1), Place::Thing(ball));
            }
            house.add((0, 0), Type::Key, colour)?;
            house.place_agent(Some((0, 0)))?;
            Mission::PickUp(house.meant(Some(Type::Box), Some(of_box).filter(|_| !blocked), None))
        }
        Task::UnlockToUnlock => {
            let one = house.colour();
            let other =
                (one + 1 + house.stream.below(COLOURS.len() - 1) as u8) % COLOURS.len() as u8;
            house.add_door((0, 0), 0, one, Lock::Locked);
            house.add((2, 0), Type::Key, one)?;
            house.add_door((1, 0), 0, other, Lock::Locked);
            house.add((1, 0), Type::Key, other)?;
            let of_ball = house.colour();
            house.add((0, 0), Type::Ball, of_ball)?;
            house.place_agent(Some((1, 0)))?;
            Mission::PickUp(house.meant(Some(Type::Ball), None, None))
        }
    };
    (task == Task::BlockedUnlockPickup || house.all_can_be_reached())
        .then_some((house.grid, mission))
}

/// Column and row of a room.
type Room = (usize, usize);

struct House<'a> {
    grid: Grid,
    /// Cells a side of a room, both walls too, which rooms share.
    size: usize,
    columns: usize,
    rows: usize,
    /// By room where a door to the right and one down would be.
    openings: Vec<[Cell; 2]>,
    /// By room whether there is a door to the right and down.
    doors: Vec<[bool; 2]>,
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
        let place = |cell| {
            if wall(cell) {
                Place::Wall
            } else {
                Place::Empty
            }
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
            doors: vec![[false; 2]; columns * rows],
            grid: Grid {
                width,
                cells: (0..width * height).map(place).collect(),
                // Things keep off the middle until the agent has its place.
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

    /// A new thing of that kind and a drawn colour.
    fn thing(&mut self, kind: Type) -> Thing {
        self.made += 1;
        Thing {
            number: self.made,
            kind,
            colour: self.colour(),
        }
    }

    /// The empty cells of a room.
    fn free(&self, (column, row): Room) -> Vec<Cell> {
        let (x, y) = (column * (self.size - 1), row * (self.size - 1));
        let inside = 1..self.size - 1;
        let cells = inside
            .clone()
            .flat_map(|dy| inside.clone().map(move |dx| (x + dx, y + dy)));
        cells
            .filter(|&cell| self.grid.at(cell) == Place::Empty && cell != self.grid.agent)
            .collect()
    }

    fn any_room(&mut self) -> Room {
        (
            self.stream.below(self.columns),
            self.stream.below(self.rows),
        )
    }

    /// Puts a thing into a room, not right beside the agent.
    fn add(&mut self, room: Room, kind: Type, colour: u8) -> Option<Thing> {
        let mut cells = self.free(room);
        cells.retain(|&cell| !are_neighbours(cell, self.grid.agent));
        if cells.is_empty() {
            return None;
        }
        let thing = Thing {
            colour,
            ..self.thing(kind)
        };
        self.grid
            .set(cells[self.stream.below(cells.len())], Place::Thing(thing));
        Some(thing)
    }

    /// Adds drawn things to a room, or each to a drawn one; `unique`: no two of a kind and colour in the house.
    fn distract(&mut self, room: Option<Room>, count: usize, unique: bool) -> Option<Vec<Thing>> {
        let mut added = Vec::new();
        while added.len() < count {
            let (kind, colour) = (Type::ALL[self.stream.below(3)], self.colour());
            let same = |(_, thing): (Cell, Thing)| (thing.kind, thing.colour) == (kind, colour);
            if unique && self.grid.things().any(same) {
                continue;
            }
            let room = room.unwrap_or_else(|| self.any_room());
            added.push(self.add(room, kind, colour)?);
        }
        Some(added)
    }

    /// Puts a door into a room's wall (right 0, down 1, left 2, up 3), which must be one to another room.
    fn add_door(&mut self, (column, row): Room, side: usize, colour: u8, lock: Lock) -> Cell {
        let (column, row) = match side {
            2 => (column - 1, row),
            3 => (column, row - 1),
            _ => (column, row),
        };
        let room = row * self.columns + column;
        self.doors[room][side % 2] = true;
        let cell = self.openings[room][side % 2];
        self.grid.set(cell, Place::Door { colour, lock });
        cell
    }

    /// Adds closed doors at drawn walls until there is a way to every room.
    fn connect_all(&mut self) {
        while !self.connected() {
            let ((column, row), side) = (self.any_room(), self.stream.below(2));
            let inner = if side == 0 {
                column + 1 < self.columns
            } else {
                row + 1 < self.rows
            };
            if inner && !self.doors[row * self.columns + column][side] {
                let colour = self.colour();
                self.add_door((column, row), side, colour, Lock::Closed);
            }
        }
    }

    fn connected(&self) -> bool {
        let mut reached = vec![false; self.doors.len()];
        reached[0] = true;
        for _ in 0..reached.len() {
            for room in 0..reached.len() {
                for (side, next) in [(0, room + 1), (1, room + self.columns)] {
                    if self.doors[room][side] && (reached[room] || reached[next]) {
                        (reached[room], reached[next]) = (true, true);
                    }
                }
            }
        }
        reached.iter().all(|&reached| reached)
    }

    /// Puts the agent into a room, or a drawn one, with nothing right before it but a wall or an empty cell.
    fn place_agent(&mut self, room: Option<Room>) -> Option<()> {
        let room = room.unwrap_or_else(|| self.any_room());
        self.grid.agent = (0, 0);
        let cells = self.free(room);
        if cells.is_empty() {
            return None;
        }
        (self.grid.agent, self.grid.way) =
            (cells[self.stream.below(cells.len())], self.stream.below(4));
        matches!(self.grid.at(self.grid.front()), Place::Empty | Place::Wall).then_some(())
    }

    /// Whether every thing and door can be come to without moving another thing, were all doors open.
    fn all_can_be_reached(&self) -> bool {
        let mut reached = vec![self.grid.agent];
        let mut place = 0;
        while let Some(&cell) = reached.get(place) {
            place += 1;
            if !matches!(self.grid.at(cell), Place::Empty | Place::Door { .. }) {
                continue;
            }
            let next = (0..4).map(|way| ahead(cell, way));
            let next: Vec<Cell> = next
                .filter(|&next| self.grid.at(next) != Place::Wall && !reached.contains(&next))
                .collect();
            reached.extend(next);
        }
        let doors = self.grid.doors().map(|(cell, ..)| cell);
        doors
            .chain(self.grid.things().map(|(cell, _)| cell))
            .all(|cell| reached.contains(&cell))
    }

    fn meant(&self, kind: Option<Type>, colour: Option<u8>, side: Option<usize>) -> Meant {
        Meant::new(&self.grid, kind, colour, side)
    }

    /// A drawn description that something fits, half of them with a side.
    fn meant_somehow(&mut self) -> Option<Meant> {
        let meant = (0..100).map(|_| {
            let colour = self
                .stream
                .below(COLOURS.len() + 1)
                .checked_sub(1)
                .map(|colour| colour as u8);
            let kind = Type::ALL[self.stream.below(3)];
            let side = self
                .stream
                .chance(0.5)
                .then(|| self.stream.below(SIDES.len()));
            self.meant(Some(kind), colour, side)
        });
        meant.into_iter().find(|meant| !meant.numbers.is_empty())
    }
}
