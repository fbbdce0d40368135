//! Solving levels by search.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::level::{Level, Position};

/// The most positions that a search visits.
pub(super) const BUDGET: usize = 20_000;

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Solution {
    /// The moves of a shortest solution.
    Shortest(Vec<usize>),
    /// There is no solution.
    Impossible,
    /// The budget ran out.
    Unknown,
}

/// Finds a shortest solution by A* over steps. The sum of the fewest pushes of all boxes never exceeds the number of
/// steps, because a step pushes at most one box.
pub(super) fn solve(level: &Level, start: &Position) -> Solution {
    let pushes = level.pushes();
    let at_least = |state: &Position| {
        state
            .boxes()
            .map(|cell| pushes[cell].map(usize::from))
            .sum::<Option<usize>>()
    };
    let Some(least) = at_least(start) else {
        return Solution::Impossible;
    };
    // Position, index of the previous node, move, steps.
    let mut nodes = vec![(*start, 0, 0, 0)];
    let mut steps_to = HashMap::from([(*start, 0)]);
    // Among equal estimates the newest node comes first.
    let mut open = BinaryHeap::from([(Reverse(least), 0)]);
    let mut visited = 0;
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
            return Solution::Shortest(ways);
        }
        if steps_to[&state] < steps {
            continue;
        }
        visited += 1;
        if visited > BUDGET {
            return Solution::Unknown;
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
    Solution::Impossible
}
