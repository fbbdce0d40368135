//! Drawing levels: a random walk clears a room, and reverse play scatters the boxes from their targets.

use std::collections::{HashSet, VecDeque};

use super::level::{Level, Position, opposite};
use crate::picture::distance;
use crate::rng::Stream;

/// The cells that the walk clears, as offsets of columns and rows.
const BRUSHES: [&[(isize, isize)]; 5] = [
    &[(-1, 0), (0, 0), (1, 0)],
    &[(0, -1), (0, 0), (0, 1)],
    &[(0, 0), (1, 0), (1, 1)],
    &[(0, 0), (1, 0), (0, 1), (1, 1)],
    &[(0, 0), (1, 0), (0, 1)],
];

/// The probability that the walk turns at a step.
const TURN: f64 = 0.35;

/// The most steps of reverse play.
const DEEPEST: usize = 300;

/// The most rooms that are drawn.
const TRIES: usize = 50;

/// The number of rooms with a level of which the best is taken.
const CANDIDATES: usize = 4;

/// A level with its start and the moves that solve it.
pub(super) struct DrawnLevel {
    pub(crate) level: Level,
    pub(crate) start: Position,
    pub(crate) solution: Vec<usize>,
}

/// Draws a level that is not solved at its start. `effort` is the number of positions that reverse play visits in a room.
/// If no room has a level, which is rare, the level is [`plain`].
pub(super) fn draw(
    width: usize,
    height: usize,
    boxes: usize,
    effort: usize,
    stream: &mut Stream,
) -> DrawnLevel {
    let rooms = (0..TRIES).filter_map(|_| {
        let floor = room(width, height, stream);
        scatter(width, floor, boxes, effort, stream)
    });
    let best = rooms.take(CANDIDATES).max_by_key(|(score, _)| *score);
    best.map_or_else(|| plain(width, height, boxes), |(_, drawn)| drawn)
}

/// Draws the floor of a room by a random walk.
fn room(width: usize, height: usize, stream: &mut Stream) -> Vec<bool> {
    let mut floor = vec![false; width * height];
    let (mut x, mut y) = (1 + stream.below(width - 2), 1 + stream.below(height - 2));
    let mut way = stream.below(4);
    for _ in 0..(width + height) * 17 / 10 {
        if stream.chance(TURN) {
            way = stream.below(4);
        }
        (x, y) = match way {
            0 => (x, y - 1),
            1 => (x, y + 1),
            2 => (x - 1, y),
            _ => (x + 1, y),
        };
        (x, y) = (x.clamp(1, width - 2), y.clamp(1, height - 2));
        for (dx, dy) in BRUSHES[stream.below(BRUSHES.len())] {
            let (x, y) = (x.saturating_add_signed(*dx), y.saturating_add_signed(*dy));
            if (1..width - 1).contains(&x) && (1..height - 1).contains(&y) {
                floor[y * width + x] = true;
            }
        }
    }
    floor
}

#[derive(Clone, Copy)]
struct ReversePosition {
    state: Position,
    from: usize,
    way: usize,
    depth: usize,
    /// The cell of the box that was pulled last.
    pulled: Option<usize>,
    /// The number of changes between pulled boxes.
    changes: usize,
}

/// Draws targets with boxes and the player's cell, and plays in reverse, continuing at random from the newest or the
/// oldest position, so that play goes far and leaves little out. The level starts at the position with the highest score:
/// the number of changes between pulled boxes times the distances of the boxes from targets. Returns the score and the
/// level; `None` if the room is too small or no position has a score.
fn scatter(
    width: usize,
    floor: Vec<bool>,
    boxes: usize,
    effort: usize,
    stream: &mut Stream,
) -> Option<(usize, DrawnLevel)> {
    let mut free: Vec<usize> = (0..floor.len()).filter(|&cell| floor[cell]).collect();
    if free.len() < boxes + 2 {
        return None;
    }
    let mut targets = vec![false; floor.len()];
    let mut take = || free.swap_remove(stream.below(free.len()));
    let player = take();
    let cells: Vec<usize> = (0..boxes).map(|_| take()).collect();
    cells.iter().for_each(|&cell| targets[cell] = true);
    let level = Level {
        width,
        floor,
        targets,
        ..Level::default()
    };
    let distances = distances(&level);
    let mut nodes = vec![ReversePosition {
        state: Position::new(player, &cells),
        from: 0,
        way: 0,
        depth: 0,
        pulled: None,
        changes: 0,
    }];
    let mut seen = HashSet::from([nodes[0].state]);
    let mut open = VecDeque::from([0]);
    let (mut best, mut highest) = (0, 0);
    while let Some(node) = if stream.chance(0.5) {
        open.pop_back()
    } else {
        open.pop_front()
    } {
        let before = nodes[node];
        let far: usize = before.state.boxes().map(|cell| distances[cell]).sum();
        let score = before.changes * far;
        if score > highest {
            (best, highest) = (node, score);
        }
        if before.depth == DEEPEST || nodes.len() >= effort {
            continue;
        }
        let turn = stream.below(4);
        for way in (0..4).map(|way| (way + turn) % 4) {
            for pull in [false, true] {
                let after = level.back(&before.state, way, pull);
                let Some(state) = after.filter(|after| seen.insert(*after)) else {
                    continue;
                };
                let player = usize::from(before.state.player);
                let behind = level.neighbour(player, opposite(way));
                open.push_back(nodes.len());
                nodes.push(ReversePosition {
                    state,
                    from: node,
                    way,
                    depth: before.depth + 1,
                    pulled: if pull { Some(player) } else { before.pulled },
                    changes: before.changes + usize::from(pull && before.pulled != behind),
                });
            }
        }
    }
    let start = nodes[best].state;
    if highest == 0 || level.solved(&start) {
        return None;
    }
    let mut solution = Vec::new();
    while best != 0 {
        solution.push(opposite(nodes[best].way));
        best = nodes[best].from;
    }
    let drawn = DrawnLevel {
        level,
        start,
        solution,
    };
    Some((highest, drawn))
}

/// Returns the distance of each cell from the nearest target along rows and columns, regardless of walls.
fn distances(level: &Level) -> Vec<usize> {
    let at = |cell: usize| (cell % level.width, cell / level.width);
    let cells = 0..level.targets.len();
    let targets: Vec<usize> = cells.clone().filter(|&cell| level.targets[cell]).collect();
    let to_nearest = |cell| targets.iter().map(|&to| distance(at(cell), at(to))).min();
    cells.map(|cell| to_nearest(cell).unwrap_or(0)).collect()
}

/// Returns an open room with the targets along its upper wall and each box below its target.
pub(super) fn plain(width: usize, height: usize, boxes: usize) -> DrawnLevel {
    let inside = |cell: usize| {
        (1..width - 1).contains(&(cell % width)) && (1..height - 1).contains(&(cell / width))
    };
    let level = Level {
        width,
        floor: (0..width * height).map(inside).collect(),
        targets: (0..width * height)
            .map(|cell| (width + 1..=width + boxes).contains(&cell))
            .collect(),
        ..Level::default()
    };
    let cells: Vec<usize> = (1..=boxes).map(|x| 2 * width + x).collect();
    // Up, back down, and right to the next box.
    let mut solution = [0, 1, 3].repeat(boxes);
    solution.truncate(3 * boxes - 2);
    DrawnLevel {
        start: Position::new(3 * width + 1, &cells),
        level,
        solution,
    }
}
