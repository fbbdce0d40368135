//! The players that are no models: the enemies, and the scripted player.

use super::board::{Board, Cell, Thing};
use crate::rng::Stream;

/// How an enemy moves: evenly among the moves that keep it on the board and off its own body, or among all if there are
/// none. It looks at no other snake. From length 3 on it takes its own tail for a free cell, wrongly.
pub(super) fn enemy(board: &Board, who: usize, stream: &mut Stream) -> Option<usize> {
    let body = &board.snakes[who].0;
    let head = *body.front()?;
    let solid = if body.len() > 2 {
        body.len() - 1
    } else {
        body.len()
    };
    let hits_itself = |cell: Cell| body.iter().take(solid).any(|&part| part == cell);
    let careful = |way: &usize| {
        board
            .neighbour(head, *way)
            .is_some_and(|cell| !hits_itself(cell))
    };
    let ways: Vec<usize> = (0..4).filter(careful).collect();
    if ways.is_empty() {
        Some(stream.below(4))
    } else {
        Some(ways[stream.below(ways.len())])
    }
}

/// How a greedy enemy moves: one of the greedy player's moves, by luck.
pub(super) fn greedy_enemy(
    board: &Board,
    who: usize,
    worth: impl Fn(Thing) -> f64,
    stream: &mut Stream,
) -> Option<usize> {
    board.snakes[who].head()?;
    let ways = greedy(&board.seen_by(who), worth);
    Some(ways[stream.below(ways.len())])
}

/// How bad a move is, the worst last.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Risk {
    None,
    /// Something there costs points.
    Harm,
    /// An enemy may move there too.
    Clash,
    Death,
}

/// The moves of the greedy player for snake 0 (see [`Board::seen_by`]): of those with the least risk, those nearest to
/// something worth points.
pub(super) fn greedy(board: &Board, worth: impl Fn(Thing) -> f64) -> Vec<usize> {
    let Some(head) = board.snakes[0].head() else {
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

fn risk(board: &Board, cell: Cell, worth: impl Fn(Thing) -> f64) -> Risk {
    let enemies = board.snakes[1..].iter().filter_map(|snake| snake.head());
    if enemies.into_iter().any(|head| distance(head, cell) == 1) {
        Risk::Clash
    } else if board.thing(cell).is_some_and(|thing| worth(thing) < 0.0) {
        Risk::Harm
    } else {
        Risk::None
    }
}

/// Steps from a cell to the nearest thing worth points; 0 if there is none.
fn to_the_nearest(board: &Board, cell: Cell, worth: impl Fn(Thing) -> f64) -> usize {
    let wanted = board
        .things
        .iter()
        .filter(|&&(_, thing)| worth(thing) > 0.0);
    wanted.map(|&(at, _)| distance(at, cell)).min().unwrap_or(0)
}

fn distance(one: Cell, other: Cell) -> usize {
    one.0.abs_diff(other.0) + one.1.abs_diff(other.1)
}
