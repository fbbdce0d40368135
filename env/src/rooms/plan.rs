//! The scripted player: go to, fetch, put away, open, each by the cheapest way through what is in it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::grid::{Action, Cell, Grid, Lock, Place, Thing, Type, ahead, are_neighbours};
use super::mission::{Meant, Mission};

/// What it costs to clear a thing out of the way, and to find the key of a door, in steps, by rule of thumb.
const CLEAR: usize = 12;
const UNLOCK: usize = 40;

/// How deep needs may be nested: a thing behind a door whose key lies behind a door, and so on.
const DEEPEST: usize = 8;

/// The next action, if there is a way.
pub(super) fn next(grid: &Grid, mission: &Mission) -> Option<Action> {
    let cells = |what: &Meant| places(grid, |thing| what.includes(thing));
    match mission {
        Mission::GoTo(what) => face(grid, &cells(what), Action::Toggle, DEEPEST),
        Mission::PickUp(what) => fetch(grid, &cells(what), DEEPEST),
        Mission::PutNext(what, to) => {
            if grid.carried.is_some_and(|thing| what.includes(thing)) {
                let beside = |cell: Cell| (0..4).map(move |way| ahead(cell, way));
                let mut free: Vec<Cell> = cells(to).into_iter().flat_map(beside).collect();
                free.retain(|&cell| grid.at(cell) == Place::Empty);
                face(grid, &free, Action::Drop, DEEPEST)
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
    (thing.kind, thing.colour) == (Type::Key, colour)
}

fn open(grid: &Grid, door: Cell, colour: u8, lock: Lock, depth: usize) -> Option<Action> {
    if lock == Lock::Locked && !grid.carried.is_some_and(|thing| is_key(thing, colour)) {
        return fetch(grid, &places(grid, |thing| is_key(thing, colour)), depth);
    }
    face(grid, &[door], Action::Toggle, depth)
}

/// Picks up a thing in one of the cells, with empty hands.
fn fetch(grid: &Grid, cells: &[Cell], depth: usize) -> Option<Action> {
    if grid.carried.is_some() {
        // Not before the doors on the way are open: it may be the key of one.
        let obstacle = |step: &Step| match grid.at(step.agent) {
            Place::Thing(_) => Some(None),
            Place::Door {
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
    face(grid, cells, Action::PickUp, depth)
}

/// Drops what is carried, not at a door, where that is the smallest detour on the way to one of the cells.
fn put_away(grid: &Grid, cells: &[Cell]) -> Option<Action> {
    let thing = grid.carried?;
    let at_door = |cell: Cell| grid.doors().any(|(door, ..)| are_neighbours(cell, door));
    let free = |cell: &Cell| grid.at(*cell) == Place::Empty && !at_door(*cell);
    let all = (0..grid.cells.len()).map(|cell| (cell % grid.width, cell / grid.width));
    let detours = all.filter(free).filter_map(|cell| {
        let (there, way) = way_to(grid, &[cell])?;
        let mut dropped = grid.clone();
        if let Some(last) = way.last() {
            (dropped.agent, dropped.way) = (last.agent, last.way);
        }
        dropped.set(cell, Place::Thing(thing));
        let (on, _) = way_to(&dropped, cells)?;
        let action = way.first().map_or(Action::Drop, |step| step.action(grid));
        Some((there + on, action))
    });
    let (_, action) = detours.min_by_key(|(cost, _)| *cost)?;
    Some(action)
}

/// Comes to stand before one of the cells and does the action there; what is in the way is cleared or opened first.
fn face(grid: &Grid, cells: &[Cell], action: Action, depth: usize) -> Option<Action> {
    let depth = depth.checked_sub(1)?;
    let (_, way) = way_to(grid, cells)?;
    let Some(first) = way.first() else {
        return Some(action);
    };
    for step in way.iter().filter(|step| step.forward) {
        let cell = step.agent;
        match grid.at(cell) {
            Place::Thing(_) => return fetch(grid, &[cell], depth),
            Place::Door {
                colour,
                lock: Lock::Locked,
            } => return open(grid, cell, colour, Lock::Locked, depth),
            _ => {}
        }
    }
    Some(first.action(grid))
}

/// Where a step of a way leads.
#[derive(Debug, Clone, Copy)]
struct Step {
    agent: Cell,
    way: usize,
    forward: bool,
}

impl Step {
    /// The action that takes it, or opens the door that it needs open.
    fn action(&self, grid: &Grid) -> Action {
        if self.forward {
            match grid.at(self.agent) {
                Place::Door { lock, .. } if lock != Lock::Open => Action::Toggle,
                _ => Action::Forward,
            }
        } else if self.way == (grid.way + 1) % 4 {
            Action::Right
        } else {
            Action::Left
        }
    }
}

/// The cheapest way to stand before one of the cells, as if things and locked doors only cost steps, and what it costs.
fn way_to(grid: &Grid, goals: &[Cell]) -> Option<(usize, Vec<Step>)> {
    let number = |(x, y): Cell, way: usize| (y * grid.width + x) * 4 + way;
    let mut costs = vec![usize::MAX; grid.cells.len() * 4];
    let mut came_from: Vec<Option<(usize, Step)>> = vec![None; costs.len()];
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
            Place::Wall => None,
            Place::Empty
            | Place::Door {
                lock: Lock::Open, ..
            } => Some(0),
            Place::Door {
                lock: Lock::Closed, ..
            } => Some(1),
            Place::Door { .. } => Some(UNLOCK),
            Place::Thing(_) => Some(CLEAR),
        };
        let turned = |way: usize| Step {
            agent,
            way,
            forward: false,
        };
        let ahead = toll.map(|toll| {
            (
                1 + toll,
                Step {
                    agent: front,
                    way,
                    forward: true,
                },
            )
        });
        let steps = [(1, turned((way + 1) % 4)), (1, turned((way + 3) % 4))];
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
