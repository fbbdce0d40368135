//! Tables for a terminal and for Markdown pages.

use crate::csv;

/// A table of text cells. Columns of numbers are aligned to the right.
#[derive(Debug)]
pub struct TextTable {
    /// The rows; the header is the first.
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates a table from rows of cells with column names. The first row has all columns, in order; a cell that another
    /// row lacks is empty. Without rows it has no header.
    ///
    /// # Panics
    /// If a row has a column that the first one lacks, or columns in another order.
    pub fn of<N: AsRef<str>>(rows: impl IntoIterator<Item = Vec<(N, String)>>) -> TextTable {
        let mut table: Vec<Vec<String>> = Vec::new();
        for row in rows {
            if table.is_empty() {
                table.push(row.iter().map(|(name, _)| name.as_ref().into()).collect());
            }
            let mut cells = row.into_iter().peekable();
            let cell = |column: &String| {
                let cell = cells.next_if(|(name, _)| name.as_ref() == column);
                cell.map_or(String::new(), |(_, cell)| cell)
            };
            let row = table[0].iter().map(cell).collect();
            assert_eq!(cells.count(), 0, "the columns of a row");
            table.push(row);
        }
        TextTable { rows: table }
    }

    /// Returns the table for a terminal, with two spaces between columns.
    pub fn text(&self) -> String {
        let line = |cells: &Vec<String>| cells.join("  ").trim_end().to_owned() + "\n";
        self.padded(&self.rows).iter().map(line).collect()
    }

    /// Returns the table in GitHub's Markdown.
    pub fn markdown(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let escaped = |row: &Vec<String>| row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let mut rows: Vec<Vec<String>> = self.rows.iter().map(escaped).collect();
        let rule = |column| match self.is_numeric(column) {
            true => "--:".to_owned(),
            false => "---".to_owned(),
        };
        rows.insert(1, (0..rows[0].len()).map(rule).collect());
        let mut rows = self.padded(&rows);
        for cell in &mut rows[1] {
            *cell = cell.replace(' ', "-");
        }
        let line = |cells: &Vec<String>| format!("| {} |\n", cells.join(" | "));
        rows.iter().map(line).collect()
    }

    /// Returns the table as comma-separated values.
    pub(crate) fn csv(&self) -> String {
        csv::document(&self.rows)
    }

    /// Pads each cell to the width of its column.
    fn padded(&self, rows: &[Vec<String>]) -> Vec<Vec<String>> {
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let columns = rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns).filter_map(width).collect();
        let cell =
            |(column, cell): (usize, &String)| match (widths[column], self.is_numeric(column)) {
                (width, true) => format!("{cell:>width$}"),
                (width, false) => format!("{cell:width$}"),
            };
        let row = |row: &Vec<String>| row.iter().enumerate().map(cell).collect();
        rows.iter().map(row).collect()
    }

    /// Returns whether no cell of a column, except its name, starts with a letter or as a path does, and one is not empty.
    fn is_numeric(&self, column: usize) -> bool {
        let cells = self.rows[1..].iter();
        let mut starts = cells
            .filter_map(|row| row[column].chars().next())
            .peekable();
        starts.peek().is_some() && !starts.any(|c| c.is_alphabetic() || "./".contains(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right() {
        let row = |cells: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            cells
                .iter()
                .map(|(name, cell)| (*name, (*cell).to_owned()))
                .collect()
        };
        let table = TextTable::of([
            row(&[("player", "random"), ("return", "0.5"), ("95 %", "-1 to 1")]),
            row(&[("player", "a | b"), ("return", "-10.25")]),
        ]);
        assert_eq!(
            table.text(),
            "player  return     95 %\n\
             random     0.5  -1 to 1\n\
             a | b   -10.25\n"
        );
        assert_eq!(
            table.markdown(),
            "| player | return |    95 % |\n\
             | ------ | -----: | ------: |\n\
             | random |    0.5 | -1 to 1 |\n\
             | a \\| b | -10.25 |         |\n"
        );
    }
}
