//! The picture of a board.

/// Rows of a character a cell with spaces between; the cells come row by row from the top left.
pub(crate) fn rows(cells: impl ExactSizeIterator<Item = char>, width: usize) -> String {
    let mut rows = String::with_capacity(2 * cells.len());
    for (number, cell) in cells.enumerate() {
        if number > 0 {
            rows.push(if number % width == 0 { '\n' } else { ' ' });
        }
        rows.push(cell);
    }
    rows
}
