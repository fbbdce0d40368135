//! The scripted player of rooms: it goes, fetches, puts away and opens, each by the cheapest way through obstacles.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter;

use super::grid::{Act, Content, Grid, Lock, Thing, ahead};
use super::mission::{Description, Mission};
use crate::picture::{Cell, distance};

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

fn open(grid: &Grid, door: Cell, colour: u8, lock: Lock, depth: usize) -> Option<Act> {
    if lock == Lock::Locked && !grid.carried.is_some_and(|thing| thing.is_key_of(colour)) {
        return fetch(grid, &places(grid, |thing| thing.is_key_of(colour)), depth);
    }
    face(grid, &[door], Act::Toggle, depth)
}

/// Returns the next act to pick up a thing in one of the cells.
fn fetch(grid: &Grid, cells: &[Cell], depth: usize) -> Option<Act> {
    if grid.carried.is_some() {
        // The doors on the way are opened first, because the carried thing can be the key of one.
        let (_, way) = way_to(grid, cells)?;
        return match obstacle(grid, &way) {
            Some((door, Content::Door(colour, lock))) => {
                open(grid, door, colour, lock, depth.checked_sub(1)?)
            }
            _ => put_away(grid, cells),
        };
    }
    face(grid, cells, Act::PickUp, depth)
}

/// Returns the next act to drop the carried thing, not at a door, with the smallest detour on the way to the cells.
fn put_away(grid: &Grid, cells: &[Cell]) -> Option<Act> {
    let thing = grid.carried?;
    let at_door = |cell: Cell| grid.doors().any(|(door, ..)| distance(cell, door) == 1);
    let free = |cell: &Cell| grid.at(*cell) == Content::Empty && !at_door(*cell);
    let all = (0..grid.cells.len()).map(|cell| (cell % grid.width, cell / grid.width));
    let detours = all.filter(free).filter_map(|cell| {
        let (there, way) = way_to(grid, &[cell])?;
        let mut dropped = grid.clone();
        if let Some(last) = way.last() {
            (dropped.agent, dropped.way) = *last;
        }
        dropped.set(cell, Content::Thing(thing));
        let (on, _) = way_to(&dropped, cells)?;
        let act = way.first().map_or(Act::Drop, |step| towards(grid, *step));
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
    match obstacle(grid, &way) {
        Some((cell, Content::Door(colour, lock))) => open(grid, cell, colour, lock, depth),
        Some((cell, _)) => fetch(grid, &[cell], depth),
        None => Some(towards(grid, *first)),
    }
}

/// The cell and the direction of the agent after a step.
type Pose = (Cell, usize);

/// Returns the first thing or locked door on a way.
fn obstacle(grid: &Grid, way: &[Pose]) -> Option<(Cell, Content)> {
    let mut contents = way.iter().map(|&(cell, _)| (cell, grid.at(cell)));
    contents.find(|(_, it)| matches!(it, Content::Thing(_) | Content::Door(_, Lock::Locked)))
}

/// Returns the act that leads to a pose one step away, or opens the door that it needs open.
fn towards(grid: &Grid, (agent, way): Pose) -> Act {
    match grid.at(agent) {
        _ if agent == grid.agent && way == (grid.way + 1) % 4 => Act::Right,
        _ if agent == grid.agent => Act::Left,
        Content::Door(_, lock) if lock != Lock::Open => Act::Toggle,
        _ => Act::Forward,
    }
}

/// Returns the cheapest way to face one of the cells and its cost. Things and locked doors count as additional steps.
fn way_to(grid: &Grid, goals: &[Cell]) -> Option<(usize, Vec<Pose>)> {
    let number = |(x, y): Cell, way: usize| (y * grid.width + x) * 4 + way;
    let pose = |number: usize| {
        let cell = number / 4;
        ((cell % grid.width, cell / grid.width), number % 4)
    };
    let mut costs = vec![usize::MAX; grid.cells.len() * 4];
    let mut came_from = vec![None; costs.len()];
    let start = number(grid.agent, grid.way);
    costs[start] = 0;
    let mut open = BinaryHeap::from([(Reverse(0), start)]);
    while let Some((Reverse(cost), here)) = open.pop() {
        if cost > costs[here] {
            continue;
        }
        let (agent, way) = pose(here);
        let front = ahead(agent, way);
        if goals.contains(&front) {
            let back = iter::successors(Some(here), |&at| came_from[at]);
            let mut steps: Vec<Pose> = back.map(pose).collect();
            // The last one is the start.
            steps.pop();
            steps.reverse();
            return Some((cost, steps));
        }
        let toll = match grid.at(front) {
            Content::Wall => None,
            Content::Empty | Content::Door(_, Lock::Open) => Some(0),
            Content::Door(_, Lock::Closed) => Some(1),
            Content::Door(_, Lock::Locked) => Some(UNLOCK),
            Content::Thing(_) => Some(CLEAR),
        };
        let ahead = toll.map(|toll| (1 + toll, number(front, way)));
        let turned = |turn: usize| (1, number(agent, (way + turn) % 4));
        for (more, next) in ahead.into_iter().chain([turned(1), turned(3)]) {
            if cost + more < costs[next] {
                costs[next] = cost + more;
                came_from[next] = Some(here);
                open.push((Reverse(cost + more), next));
            }
        }
    }
    None
}
