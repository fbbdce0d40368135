//! What is best on a lake: which actions, and how good they are.

use super::map::{Cell, Map, slips};

/// What there is to know about a map.
#[derive(Debug)]
pub(super) enum Plan {
    /// For every cell the steps to the goal, if there is a way.
    Firm(Vec<Option<usize>>),
    /// For every number of steps left, from 0 on, and every cell, the chance to reach the goal.
    Slippery(Vec<Vec<f64>>),
}

impl Plan {
    pub fn firm(map: &Map) -> Plan {
        Plan::Firm(map.distances())
    }

    /// Value iteration, a sweep for each step up to `steps`.
    pub fn slippery(map: &Map, steps: usize) -> Plan {
        let at_goal = |cell| {
            if map.cell(cell) == Cell::Goal {
                1.0
            } else {
                0.0
            }
        };
        let mut chances: Vec<Vec<f64>> = vec![(0..map.size()).map(at_goal).collect()];
        for left in 0..steps {
            let next = &chances[left];
            let best = |cell| match map.cell(cell) {
                Cell::Ice => (0..4)
                    .map(|action| through(map, next, cell, action))
                    .fold(0.0, f64::max),
                Cell::Hole | Cell::Goal => next[cell],
            };
            chances.push((0..map.size()).map(best).collect());
        }
        Plan::Slippery(chances)
    }

    /// The best chance to be at the goal within so many steps, at most those that were planned.
    pub fn chance(&self, cell: usize, left: usize) -> f64 {
        match self {
            Plan::Firm(distances) if distances[cell].is_some_and(|steps| steps <= left) => 1.0,
            Plan::Firm(_) => 0.0,
            Plan::Slippery(chances) => chances[left][cell],
        }
    }

    /// The actions that are as good as any with so many steps left, at most those that were planned.
    pub fn best_actions(&self, map: &Map, cell: usize, left: usize) -> Vec<usize> {
        match self {
            Plan::Firm(distances) => {
                // Where there is no way any more (in a hole) all actions are alike.
                let worth = |action| match distances[map.neighbour(cell, action)] {
                    Some(distance) if distances[cell].is_some() => -(distance as f64),
                    _ => f64::NEG_INFINITY,
                };
                highest((0..4).map(worth))
            }
            Plan::Slippery(chances) => {
                let left = if chances[left][cell] > 0.0 {
                    left
                } else {
                    chances.len() - 1
                };
                let next = &chances[left.saturating_sub(1)];
                highest((0..4).map(|action| through(map, next, cell, action)))
            }
        }
    }
}

/// The chance to reach the goal from where an action leads.
fn through(map: &Map, next: &[f64], cell: usize, action: usize) -> f64 {
    slips(action)
        .iter()
        .map(|&way| next[map.neighbour(cell, way)])
        .sum::<f64>()
        / 3.0
}

/// The places of the highest values. Equal chances may differ in their last digits by the order of their sum.
fn highest(values: impl Iterator<Item = f64> + Clone) -> Vec<usize> {
    let top = values.clone().fold(f64::NEG_INFINITY, f64::max);
    let near = |value: f64| value == top || value >= top - 1e-12;
    values
        .enumerate()
        .filter(|&(_, value)| near(value))
        .map(|(place, _)| place)
        .collect()
}
