//! Solving a level by search.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::level::{Level, State};

/// The most states that a search looks at.
pub(super) const BUDGET: usize = 20_000;

/// What a search found out.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Found {
    /// A shortest solution.
    Shortest(Vec<usize>),
    /// There is none.
    Nothing,
    /// The budget ran out.
    Unknown,
}

/// A* over steps: the shortest solution first. A box needs at least as many steps as pushes, and no step pushes two, so
/// their sum over the boxes is never too much.
pub(super) fn solve(level: &Level, start: &State) -> Found {
    let pushes = level.pushes();
    let at_least = |state: &State| {
        state
            .boxes()
            .map(|cell| pushes[cell].map(usize::from))
            .sum::<Option<usize>>()
    };
    let Some(least) = at_least(start) else {
        return Found::Nothing;
    };
    // By number: state, the number it was reached from, the way, the steps.
    let mut nodes = vec![(*start, 0, 0, 0)];
    let mut steps_to = HashMap::from([(*start, 0)]);
    // Of equal promise the one that has come furthest, which is the newest of those.
    let mut open = BinaryHeap::from([(Reverse(least), 0)]);
    let mut looked_at = 0;
    while let Some((_, node)) = open.pop() {
        let (state, .., steps) = nodes[node];
        if level.solved(&state) {
            let mut way_back = node;
            let mut ways = Vec::new();
            while way_back != 0 {
                let (_, from, way, _) = nodes[way_back];
                ways.push(way);
                way_back = from;
            }
            ways.reverse();
            return Found::Shortest(ways);
        }
        if steps_to[&state] < steps {
            continue;
        }
        looked_at += 1;
        if looked_at > BUDGET {
            return Found::Unknown;
        }
        for way in 0..4 {
            let Some(after) = level.step(&state, way) else {
                continue;
            };
            let Some(least) = at_least(&after) else {
                continue;
            };
            if steps_to.get(&after).is_none_or(|&known| steps + 1 < known) {
                steps_to.insert(after, steps + 1);
                open.push((Reverse(steps + 1 + least), nodes.len()));
                nodes.push((after, node, way, steps + 1));
            }
        }
    }
    Found::Nothing
}
