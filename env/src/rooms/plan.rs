//! The scripted player of rooms: it goes, fetches, puts away and opens, each by the cheapest way through obstacles.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::grid::{Act, Content, Grid, Lock, Thing, ThingKind, ahead, are_neighbours};
use super::mission::{Description, Mission};
use crate::picture::Cell;

/// The estimated steps to clear a thing out of the way.
const CLEAR: usize = 12;

/// The estimated steps to fetch the key of a door.
const UNLOCK: usize = 40;

/// The deepest nesting of needs, for instance a thing behind a door whose key lies behind a door.
const DEEPEST: usize = 8;

/// Returns the next act, if there is a way.
pub(super) fn next(grid: &Grid, mission: &Mission) -> Option<Act> {
    let cells = |what: &Description| places(grid, |thing| what.includes(thing));
    match mission {
        Mission::GoTo(what) => face(grid, &cells(what), Act::Toggle, DEEPEST),
        Mission::PickUp(what) => fetch(grid, &cells(what), DEEPEST),
        Mission::PutNext(what, to) => {
            if grid.carried.is_some_and(|thing| what.includes(thing)) {
                let beside = |cell: Cell| (0..4).map(move |way| ahead(cell, way));
                let mut free: Vec<Cell> = cells(to).into_iter().flat_map(beside).collect();
                free.retain(|&cell| grid.at(cell) == Content::Empty);
                face(grid, &free, Act::Drop, DEEPEST)
            } else {
                fetch(grid, &cells(what), DEEPEST)
            }
        }
        Mission::OpenTheDoor => {
            let (door, colour, lock) = grid.doors().find(|(_, _, lock)| *lock != Lock::Open)?;
            open(grid, door, colour, lock, DEEPEST)
        }
    }
}

fn places(grid: &Grid, wanted: impl Fn(Thing) -> bool) -> Vec<Cell> {
    grid.things()
        .filter(|(_, thing)| wanted(*thing))
        .map(|(cell, _)| cell)
        .collect()
}

fn is_key(thing: Thing, colour: u8) -> bool {
    (thing.kind, thing.colour) == (ThingKind::Key, colour)
}

fn open(grid: &Grid, door: Cell, colour: u8, lock: Lock, depth: usize) -> Option<Act> {
    if lock == Lock::Locked && !grid.carried.is_some_and(|thing| is_key(thing, colour)) {
        return fetch(grid, &places(grid, |thing| is_key(thing, colour)), depth);
    }
    face(grid, &[door], Act::Toggle, depth)
}

/// Returns the next act to pick up a thing in one of the cells.
fn fetch(grid: &Grid, cells: &[Cell], depth: usize) -> Option<Act> {
    if grid.carried.is_some() {
        // The doors on the way are opened first, because the carried thing can be the key of one.
        let obstacle = |step: &WalkStep| match grid.at(step.agent) {
            Content::Thing(_) => Some(None),
            Content::Door {
                colour,
                lock: Lock::Locked,
            } => Some(Some((step.agent, colour))),
            _ => None,
        };
        let (_, way) = way_to(grid, cells)?;
        return match way.iter().filter(|step| step.forward).find_map(obstacle) {
            Some(Some((door, colour))) => {
                open(grid, door, colour, Lock::Locked, depth.checked_sub(1)?)
            }
            _ => put_away(grid, cells),
        };
    }
    face(grid, cells, Act::PickUp, depth)
}

/// Returns the next act to drop the carried thing, not at a door, with the smallest detour on the way to the cells.
fn put_away(grid: &Grid, cells: &[Cell]) -> Option<Act> {
    let thing = grid.carried?;
    let at_door = |cell: Cell| grid.doors().any(|(door, ..)| are_neighbours(cell, door));
    let free = |cell: &Cell| grid.at(*cell) == Content::Empty && !at_door(*cell);
    let all = (0..grid.cells.len()).map(|cell| (cell % grid.width, cell / grid.width));
    let detours = all.filter(free).filter_map(|cell| {
        let (there, way) = way_to(grid, &[cell])?;
        let mut dropped = grid.clone();
        if let Some(last) = way.last() {
            (dropped.agent, dropped.way) = (last.agent, last.way);
        }
        dropped.set(cell, Content::Thing(thing));
        let (on, _) = way_to(&dropped, cells)?;
        let act = way.first().map_or(Act::Drop, |step| step.act(grid));
        Some((there + on, act))
    });
    let (_, act) = detours.min_by_key(|(cost, _)| *cost)?;
    Some(act)
}

/// Returns the next act to perform `act` in front of one of the cells. Obstacles are cleared or opened first.
fn face(grid: &Grid, cells: &[Cell], act: Act, depth: usize) -> Option<Act> {
    let depth = depth.checked_sub(1)?;
    let (_, way) = way_to(grid, cells)?;
    let Some(first) = way.first() else {
        return Some(act);
    };
    for step in way.iter().filter(|step| step.forward) {
        let cell = step.agent;
        match grid.at(cell) {
            Content::Thing(_) => return fetch(grid, &[cell], depth),
            Content::Door {
                colour,
                lock: Lock::Locked,
            } => return open(grid, cell, colour, Lock::Locked, depth),
            _ => {}
        }
    }
    Some(first.act(grid))
}

/// The pose after a step of a way.
#[derive(Debug, Clone, Copy)]
struct WalkStep {
    agent: Cell,
    way: usize,
    forward: bool,
}

impl WalkStep {
    /// Returns the act that takes the step, or opens the door that it needs open.
    fn act(&self, grid: &Grid) -> Act {
        if self.forward {
            match grid.at(self.agent) {
                Content::Door { lock, .. } if lock != Lock::Open => Act::Toggle,
                _ => Act::Forward,
            }
        } else if self.way == (grid.way + 1) % 4 {
            Act::Right
        } else {
            Act::Left
        }
    }
}

/// Returns the cheapest way to face one of the cells and its cost. Things and locked doors count as additional steps.
fn way_to(grid: &Grid, goals: &[Cell]) -> Option<(usize, Vec<WalkStep>)> {
    let number = |(x, y): Cell, way: usize| (y * grid.width + x) * 4 + way;
    let mut costs = vec![usize::MAX; grid.cells.len() * 4];
    let mut came_from: Vec<Option<(usize, WalkStep)>> = vec![None; costs.len()];
    let start = number(grid.agent, grid.way);
    costs[start] = 0;
    let mut open = BinaryHeap::from([(Reverse(0), start)]);
    while let Some((Reverse(cost), pose)) = open.pop() {
        if cost > costs[pose] {
            continue;
        }
        let (agent, way) = ((pose / 4 % grid.width, pose / 4 / grid.width), pose % 4);
        let front = ahead(agent, way);
        if goals.contains(&front) {
            let mut steps = Vec::new();
            let mut at = pose;
            while let Some((before, step)) = came_from[at] {
                steps.push(step);
                at = before;
            }
            steps.reverse();
            return Some((cost, steps));
        }
        let toll = match grid.at(front) {
            Content::Wall => None,
            Content::Empty
            | Content::Door {
                lock: Lock::Open, ..
            } => Some(0),
            Content::Door {
                lock: Lock::Closed, ..
            } => Some(1),
            Content::Door { .. } => Some(UNLOCK),
            Content::Thing(_) => Some(CLEAR),
        };
        let step = |agent, way, forward| WalkStep {
            agent,
            way,
            forward,
        };
        let ahead = toll.map(|toll| (1 + toll, step(front, way, true)));
        let turned = |turn: usize| (1, step(agent, (way + turn) % 4, false));
        let steps = [turned(1), turned(3)];
        for (more, step) in ahead.into_iter().chain(steps) {
            let next = number(step.agent, step.way);
            if cost + more < costs[next] {
                costs[next] = cost + more;
                came_from[next] = Some((pose, step));
                open.push((Reverse(cost + more), next));
            }
        }
    }
    None
}
