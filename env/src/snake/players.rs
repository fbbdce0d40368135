//! The moves of random enemies and of the scripted player of Snake.

use super::board::{Food, SnakeBoard};
use crate::picture::{Cell, distance};

/// Returns the moves of a random enemy: those that keep it on the board and off its own body, or all if there are none. It
/// ignores other snakes. From length 3 it treats its own tail as free, as in FastSnake.
pub(super) fn random(board: &SnakeBoard, who: usize) -> Vec<usize> {
    let body = &board.snakes[who];
    let solid = body.len() - usize::from(body.len() > 2);
    let hits_itself = |cell: Cell| body.iter().take(solid).any(|&part| part == cell);
    let careful = |way: &usize| {
        let next = board.neighbour(body[0], *way);
        next.is_some_and(|cell| !hits_itself(cell))
    };
    let ways: Vec<usize> = (0..4).filter(careful).collect();
    if ways.is_empty() {
        (0..4).collect()
    } else {
        ways
    }
}

/// The danger of a move in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Risk {
    None,
    /// Food that costs points.
    Harm,
    /// An enemy can move there too.
    Clash,
    Death,
}

/// Returns the moves of the greedy player for snake 0 (see [`SnakeBoard::seen_by`]): among those with the least risk, those
/// nearest to food worth points.
pub(super) fn greedy(board: &SnakeBoard, worth: impl Fn(Food) -> f64) -> Vec<usize> {
    let Some(&head) = board.snakes[0].front() else {
        return (0..4).collect();
    };
    let moves = (0..4).map(|way| match board.neighbour(head, way) {
        Some(cell) if !board.taken(cell) => (
            risk(board, cell, &worth),
            to_the_nearest(board, cell, &worth),
        ),
        _ => (Risk::Death, 0),
    });
    let moves: Vec<(Risk, usize)> = moves.collect();
    (0..4)
        .filter(|&way| moves.iter().all(|other| moves[way] <= *other))
        .collect()
}

fn risk(board: &SnakeBoard, cell: Cell, worth: impl Fn(Food) -> f64) -> Risk {
    let mut enemies = board.snakes[1..].iter().filter_map(|snake| snake.front());
    if enemies.any(|&head| distance(head, cell) == 1) {
        Risk::Clash
    } else if board.food_at(cell).is_some_and(|food| worth(food) < 0.0) {
        Risk::Harm
    } else {
        Risk::None
    }
}

/// Returns the steps from a cell to the nearest food worth points; 0 if there is none.
fn to_the_nearest(board: &SnakeBoard, cell: Cell, worth: impl Fn(Food) -> f64) -> usize {
    let wanted = board.food.iter().filter(|&&(_, food)| worth(food) > 0.0);
    wanted.map(|&(at, _)| distance(at, cell)).min().unwrap_or(0)
}
