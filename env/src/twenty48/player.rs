//! The scripted player of 2048.

use super::board::{TileBoard, UP};

/// The cells of a path that winds from the bottom left corner to the top, best first.
const PATH: [usize; 16] = [12, 13, 14, 15, 11, 10, 9, 8, 4, 5, 6, 7, 3, 2, 1, 0];

/// Returns the best moves for high tiles, by expectimax; all moves if none moves anything. With `spare_up` up is best only
/// if nothing else moves.
pub(super) fn high(board: &TileBoard, spare_up: bool) -> Vec<usize> {
    let values: Vec<(bool, f64)> = (0..4)
        .map(|way| match slid(board, way) {
            Some(after) => (!(spare_up && way == UP), expected(&after)),
            None => (false, f64::NEG_INFINITY),
        })
        .collect();
    best(&values)
}

/// Returns the best moves for low tiles: those that move nothing, then those with the lowest highest tile, then those that
/// merge the lowest tiles.
pub(super) fn low(board: &TileBoard, spare_up: bool) -> Vec<usize> {
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

/// Returns the board after a slide, if it moves anything.
fn slid(board: &TileBoard, way: usize) -> Option<TileBoard> {
    let mut after = *board;
    after.slide(way).then_some(after)
}

/// Returns the mean worth after the best next move over the cells of a new 2.
fn expected(board: &TileBoard) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for cell in board.empty() {
        let mut next = *board;
        next.0[cell] = 1;
        let moves = (0..4).filter_map(|way| slid(&next, way));
        // Without a move the worth is 0.
        sum += moves.map(|after| worth(&after)).fold(0.0, f64::max);
        count += 1.0;
    }
    sum / f64::max(count, 1.0)
}

/// Returns the sum of the tiles, weighted less and less along the path.
fn worth(board: &TileBoard) -> f64 {
    let tile = |&cell: &usize| match board.0[cell] {
        0 => 0.0,
        level => f64::from(1u32 << level),
    };
    PATH.iter()
        .rev()
        .fold(0.0, |worth, cell| worth / 4.0 + tile(cell))
}

/// Returns the sum of the squares of all tiles, which every merge increases.
fn squares(board: &TileBoard) -> i64 {
    let square = |&level: &u8| if level == 0 { 0 } else { 1i64 << (2 * level) };
    board.0.iter().map(square).sum()
}
