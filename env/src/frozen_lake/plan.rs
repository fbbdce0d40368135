//! What is best on a lake: which actions, and how good they are.

use super::map::{Cell, Map, slips};
use super::options::Task;

/// What there is to know about a map.
#[derive(Debug)]
pub(super) enum Plan {
    /// For every cell the steps to the nearest that is wanted, if there is a way. Of firm ice, where only arriving counts.
    Firm(Vec<Option<usize>>),
    /// For every number of steps left, from 0 on, and every cell, the highest return that can be expected.
    Timed(Vec<Vec<f64>>),
}

impl Plan {
    pub fn new(map: &Map, task: &Task) -> Plan {
        if task.slippery || task.red || task.exact.is_some() {
            Plan::timed(map, task)
        } else {
            Plan::Firm(map.distances_to(task.wanted(), Cell::is_ice))
        }
    }

    /// Value iteration, a sweep for each step up to the limit.
    fn timed(map: &Map, task: &Task) -> Plan {
        let mut values = vec![vec![0.0; map.size()]];
        for left in 1..=task.step_limit {
            let best = |cell| {
                let returns = (0..4).map(|action| through(map, task, &values, cell, action, left));
                if map.cell(cell).is_ice() {
                    returns.fold(f64::NEG_INFINITY, f64::max)
                } else {
                    0.0
                }
            };
            let sweep = (0..map.size()).map(best).collect();
            values.push(sweep);
        }
        Plan::Timed(values)
    }

    /// The highest return that can be expected in so many steps, at most those that were planned.
    pub fn optimum(&self, cell: usize, left: usize) -> f64 {
        match self {
            Plan::Firm(distances) if distances[cell].is_some_and(|steps| steps <= left) => 1.0,
            Plan::Firm(_) => 0.0,
            Plan::Timed(values) => values[left][cell],
        }
    }

    /// The actions that are as good as any with so many steps left, at most those that were planned.
    pub fn best_actions(&self, map: &Map, task: &Task, cell: usize, left: usize) -> Vec<usize> {
        let values = match self {
            Plan::Firm(distances) => {
                // Where there is no way any more (in a hole) all actions are alike.
                let worth = |action| match distances[map.neighbour(cell, action)] {
                    Some(distance) if distances[cell].is_some() => -(distance as f64),
                    _ => f64::NEG_INFINITY,
                };
                return highest((0..4).map(worth));
            }
            Plan::Timed(values) => values,
        };
        let within = |left: usize| {
            let left = left.max(1);
            highest((0..4).map(|action| through(map, task, values, cell, action, left)))
        };
        let now = values[left][cell];
        if task.exact.is_some() {
            within(left)
        } else if !task.red {
            let hopeless = now <= 0.0;
            within(if hopeless { task.step_limit } else { left })
        } else {
            // Of what is as good in the end rather that which is soon as good: red ice is not walked round for ever.
            let mut best = within(left);
            let soon = (1..=left).find(|&few| values[few][cell] >= now - NEAR);
            let soon = soon.map(within).unwrap_or_default();
            if best.iter().any(|action| soon.contains(action)) {
                best.retain(|action| soon.contains(action));
            }
            best
        }
    }
}

/// The return to be expected of an action with so many steps left, this one included.
fn through(
    map: &Map,
    task: &Task,
    values: &[Vec<f64>],
    cell: usize,
    action: usize,
    left: usize,
) -> f64 {
    let (next, step) = (&values[left - 1], task.step_limit - left + 1);
    let slips = slips(action);
    let ways = if task.slippery {
        &slips[..]
    } else {
        std::slice::from_ref(&action)
    };
    let arrived = |&way: &usize| {
        let there = map.neighbour(cell, way);
        task.reward(map.cell(there), step) + next[there]
    };
    ways.iter().map(arrived).sum::<f64>() / ways.len() as f64
}

/// Equal returns may differ in their last digits by the order of their sum.
const NEAR: f64 = 1e-12;

/// The places of the highest values.
fn highest(values: impl Iterator<Item = f64> + Clone) -> Vec<usize> {
    let top = values.clone().fold(f64::NEG_INFINITY, f64::max);
    let near = |value: f64| value == top || value >= top - NEAR;
    values
        .enumerate()
        .filter(|&(_, value)| near(value))
        .map(|(place, _)| place)
        .collect()
}
