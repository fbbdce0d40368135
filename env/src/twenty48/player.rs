//! The scripted player.

use super::board::{Board, UP};

/// The cells along a path that winds from the bottom left corner to the top, best first.
const PATH: [usize; 16] = [12, 13, 14, 15, 11, 10, 9, 8, 4, 5, 6, 7, 3, 2, 1, 0];

/// The ways that are best for high tiles, by expectimax; all of them if nothing moves any way. `spare_up` keeps up for
/// when nothing else moves.
pub(super) fn high(board: &Board, spare_up: bool) -> Vec<usize> {
    let values: Vec<(bool, f64)> = (0..4)
        .map(|way| match slid(board, way) {
            Some(after) => (!(spare_up && way == UP), expected(&after)),
            None => (false, f64::NEG_INFINITY),
        })
        .collect();
    best(&values)
}

/// The ways that are best for low tiles: rather those that move nothing, then those with the lowest highest tile after
/// them, then those with the least worth in merged tiles.
pub(super) fn low(board: &Board, spare_up: bool) -> Vec<usize> {
    let values: Vec<(bool, i64, i64)> = (0..4)
        .map(|way| {
            let cheap = !(spare_up && way == UP);
            match slid(board, way) {
                None => (cheap, 0, 0),
                Some(after) => (
                    cheap,
                    -1 - i64::from(after.highest() - board.highest()),
                    squares(board) - squares(&after),
                ),
            }
        })
        .collect();
    best(&values)
}

fn best<T: PartialOrd>(values: &[T]) -> Vec<usize> {
    let is_best = |way: &usize| values.iter().all(|other| values[*way] >= *other);
    (0..values.len()).filter(is_best).collect()
}

/// The board after a slide, if that moves anything.
fn slid(board: &Board, way: usize) -> Option<Board> {
    let mut after = *board;
    after.slide(way).then_some(after)
}

/// The mean over the places of a new 2 of the best that the next move makes of it.
fn expected(board: &Board) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for cell in board.empty() {
        let mut next = *board;
        next.0[cell] = 1;
        let moves = (0..4).filter_map(|way| slid(&next, way));
        // Where no move is left, nothing is to be had.
        sum += moves.map(|after| worth(&after)).fold(0.0, f64::max);
        count += 1.0;
    }
    sum / f64::max(count, 1.0)
}

/// Tiles count by what they are, less and less along the path.
fn worth(board: &Board) -> f64 {
    let tile = |&cell: &usize| match board.0[cell] {
        0 => 0.0,
        level => f64::from(1u32 << level),
    };
    PATH.iter()
        .rev()
        .fold(0.0, |worth, cell| worth / 4.0 + tile(cell))
}

/// The sum of the squares of all tiles, which every merge makes larger.
fn squares(board: &Board) -> i64 {
    let square = |&level: &u8| if level == 0 { 0 } else { 1i64 << (2 * level) };
    board.0.iter().map(square).sum()
}
