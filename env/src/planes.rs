//! A board as feature planes, for players that do not read text.

/// A board as an agent sees it: planes of zeros and ones of the board's size, one for each kind of thing.
///
/// Names and size are the same in all games of a scenario and for all of its agents. A board smaller than the largest of
/// its scenario lies at the top left; cells beyond it are zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planes {
    /// The names of the planes.
    pub names: Vec<&'static str>,
    /// Rows of the largest board.
    pub height: usize,
    /// Columns of the largest board.
    pub width: usize,
    /// The indices of the ones, (plane * height + row) * width + column with rows from the top: ascending and distinct.
    pub ones: Vec<usize>,
    /// Row and column of the agent while it is on the board.
    pub at: Option<(usize, usize)>,
}

impl Planes {
    /// Returns planes of zeros.
    pub fn new(names: Vec<&'static str>, height: usize, width: usize) -> Planes {
        Planes {
            names,
            height,
            width,
            ones: Vec::new(),
            at: None,
        }
    }

    /// Sets a cell of a plane to one.
    ///
    /// # Panics
    /// If there is no such plane or cell.
    #[track_caller]
    pub fn set(&mut self, plane: usize, (row, column): (usize, usize)) {
        assert!(
            plane < self.names.len() && row < self.height && column < self.width,
            "no cell {row}, {column} on plane {plane} of {} of {} rows and {} columns",
            self.names.len(),
            self.height,
            self.width
        );
        let one = (plane * self.height + row) * self.width + column;
        if let Err(place) = self.ones.binary_search(&one) {
            self.ones.insert(place, one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_are_kept_in_order_and_once() {
        let mut planes = Planes::new(vec!["a", "b"], 2, 3);
        planes.set(1, (1, 2));
        planes.set(0, (0, 1));
        planes.set(1, (1, 2));
        assert_eq!(planes.ones, [1, 11]);
    }

    #[test]
    #[should_panic(expected = "no cell 2, 0 on plane 0 of 1 of 2 rows and 3 columns")]
    fn a_cell_beyond_the_board_is_refused() {
        Planes::new(vec!["a"], 2, 3).set(0, (2, 0));
    }
}
