//! The scripted player of Frozen Lake: optimal actions and returns.

use super::map::{LakeCell, LakeMap, slips};
use super::options::LakeOptions;

/// The optimal returns on a map.
#[derive(Debug)]
pub(super) enum LakePlan {
    /// Firm ice where only arriving counts: for every cell the steps to the nearest wanted cell, if there is a way.
    Firm(Vec<Option<usize>>),
    /// For every number of remaining steps, from 0, and every cell: the highest expected return.
    Timed(Vec<Vec<f64>>),
}

impl LakePlan {
    pub(crate) fn new(map: &LakeMap, options: &LakeOptions) -> LakePlan {
        if options.slippery || options.red > 0 || options.exact.is_some() {
            LakePlan::timed(map, options)
        } else {
            LakePlan::Firm(map.distances_to(options.wanted(), LakeCell::is_ice))
        }
    }

    /// Value iteration with one sweep per step of the limit.
    fn timed(map: &LakeMap, options: &LakeOptions) -> LakePlan {
        let mut values = vec![vec![0.0; map.cells.len()]];
        for left in 1..=options.step_limit {
            let best = |cell: usize| {
                let worth = |action| through(map, options, &values, cell, action, left);
                match map.cells[cell].is_ice() {
                    true => (0..4).map(worth).fold(f64::NEG_INFINITY, f64::max),
                    false => 0.0,
                }
            };
            let sweep = (0..map.cells.len()).map(best).collect();
            values.push(sweep);
        }
        LakePlan::Timed(values)
    }

    /// Returns the highest expected return in `left` steps, at most the step limit.
    pub(crate) fn optimum(&self, cell: usize, left: usize) -> f64 {
        match self {
            LakePlan::Firm(distances) if distances[cell].is_some_and(|steps| steps <= left) => 1.0,
            LakePlan::Firm(_) => 0.0,
            LakePlan::Timed(values) => values[left][cell],
        }
    }

    /// Returns the best moves with `left` steps remaining, at most the step limit.
    pub(crate) fn best_actions(
        &self,
        map: &LakeMap,
        options: &LakeOptions,
        cell: usize,
        left: usize,
    ) -> Vec<usize> {
        let values = match self {
            LakePlan::Firm(distances) => {
                // Without a way to the goal, as in a hole, all moves are equal.
                let worth = |action| match distances[map.neighbour(cell, action)] {
                    Some(distance) if distances[cell].is_some() => -(distance as f64),
                    _ => f64::NEG_INFINITY,
                };
                return highest((0..4).map(worth));
            }
            LakePlan::Timed(values) => values,
        };
        let within = |left: usize| {
            let left = left.max(1);
            highest((0..4).map(|action| through(map, options, values, cell, action, left)))
        };
        let now = values[left][cell];
        if options.exact.is_some() {
            within(left)
        } else if options.red == 0 {
            let hopeless = now <= 0.0;
            within(if hopeless { options.step_limit } else { left })
        } else {
            // Among equal moves prefer those that reach their return early, so that the player does not walk around
            // red ice for ever.
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

/// Returns the expected return of a move with `left` steps remaining, this one included.
fn through(
    map: &LakeMap,
    options: &LakeOptions,
    values: &[Vec<f64>],
    cell: usize,
    action: usize,
    left: usize,
) -> f64 {
    let (next, step) = (&values[left - 1], options.step_limit - left + 1);
    let ways = &slips(action)[if options.slippery { 0..3 } else { 1..2 }];
    let arrived = |&way: &usize| {
        let there = map.neighbour(cell, way);
        options.reward(map.cells[there], step) + next[there]
    };
    ways.iter().map(arrived).sum::<f64>() / ways.len() as f64
}

/// Equal returns can differ by the rounding of their sums.
const NEAR: f64 = 1e-12;

fn highest(values: impl Iterator<Item = f64> + Clone) -> Vec<usize> {
    let top = values.clone().fold(f64::NEG_INFINITY, f64::max);
    let near = |value: f64| value == top || value >= top - NEAR;
    values
        .enumerate()
        .filter(|&(_, value)| near(value))
        .map(|(place, _)| place)
        .collect()
}
