//! Tables, for a terminal and as Markdown.

use lapwing_play::metrics::{PlayMetrics, Yardsticks};

/// Returns a table of these players between the random and the scripted one, with the best possible return. The success
/// rate has its standard error. "with penalty" is the return that training uses: invalid replies reduce it.
pub fn comparison(yardsticks: &Yardsticks, players: &[(String, &PlayMetrics)]) -> String {
    let mut table = Table::new(&[
        "",
        "success",
        "return",
        "with penalty",
        "valid",
        "length",
        "episodes",
    ]);
    let random = yardsticks.random.iter().map(|play| ("random player", play));
    let scripted = yardsticks.scripted.iter();
    let scripted = scripted.map(|play| ("scripted player", play));
    let players = players.iter().map(|(name, play)| (&**name, *play));
    for (name, play) in random.chain(players).chain(scripted) {
        let (success, episodes) = (play.success_rate, play.episodes);
        let error = (success * (1.0 - success) / episodes as f64).sqrt();
        table.row([
            name.to_owned(),
            format!("{success:.3} ± {error:.3}"),
            format!("{:.3}", play.return_mean),
            format!("{:.3}", play.composite_return_mean),
            format!("{:.2}", play.valid_action_rate),
            format!("{:.1}", play.episode_length_mean),
            episodes.to_string(),
        ]);
    }
    if let Some(best) = yardsticks.best_possible {
        let mut cells = [const { String::new() }; 7];
        (cells[0], cells[2]) = ("best possible".to_owned(), format!("{best:.3}"));
        table.row(cells);
    }
    table.text()
}

/// Rows of cells below a head. Columns of numbers are aligned to the right.
pub struct Table {
    /// The head, then the rows.
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns an empty table with these columns.
    pub fn new(head: &[&str]) -> Table {
        let head = head.iter().map(|name| (*name).to_owned());
        Table {
            rows: vec![head.collect()],
        }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.rows[0].len(), "the cells of a row");
        self.rows.push(cells);
    }

    /// Returns the table for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let columns = 0..self.rows[0].len();
        let widths = columns.map(|column| {
            let widths = self.rows.iter().map(|row| row[column].chars().count());
            (widths.max().unwrap_or(0), self.is_words(column))
        });
        let widths: Vec<(usize, bool)> = widths.collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths);
            let cells = cells.map(|(cell, &(width, is_words))| match is_words {
                true => format!("{cell:width$}"),
                false => format!("{cell:>width$}"),
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    /// Returns the table as Markdown of GitHub.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = |column| if self.is_words(column) { "---" } else { "---:" }.to_owned();
        let rule: Vec<String> = (0..self.rows[0].len()).map(rule).collect();
        let rows = self.rows[1..].iter().map(|row| line(row));
        line(&self.rows[0]) + &line(&rule) + &rows.collect::<String>()
    }

    /// Whether a column holds something else than numbers.
    fn is_words(&self, column: usize) -> bool {
        let rows = self.rows[1..].iter();
        let mut starts = rows.filter_map(|row| row[column].chars().next()).peekable();
        starts.peek().is_none() || starts.any(char::is_alphabetic)
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn a_table_is_printed() {
        let mut table = Table::new(&["who", "return", "95 %"]);
        table.row(["random".to_owned(), "0.5".to_owned(), "-1 to 1".to_owned()]);
        table.row(["a | b".to_owned(), "-10.25".to_owned(), String::new()]);
        assert_eq!(
            table.text(),
            "who     return     95 %\n\
             random     0.5  -1 to 1\n\
             a | b   -10.25\n"
        );
        assert_eq!(
            table.markdown(),
            "| who | return | 95 % |\n\
             | --- | ---: | ---: |\n\
             | random | 0.5 | -1 to 1 |\n\
             | a \\| b | -10.25 |  |\n"
        );
    }

    #[test]
    fn players_are_compared() {
        let player = |success_rate: f64, valid_action_rate: f64| PlayMetrics {
            episodes: 200,
            return_mean: success_rate,
            composite_return_mean: success_rate - 10.0 * (1.0 - valid_action_rate),
            success_rate,
            valid_action_rate,
            episode_length_mean: 7.25,
            ..PlayMetrics::default()
        };
        let trained = player(0.5, 0.875);
        let yardsticks = Yardsticks {
            random: Some(player(0.055, 0.5)),
            scripted: Some(player(1.0, 1.0)),
            best_possible: Some(1.0),
            ..Yardsticks::default()
        };
        let players = [("after training".to_owned(), &trained)];
        assert_snapshot!(comparison(&yardsticks, &players));
        let bare = Yardsticks {
            scripted: None,
            best_possible: None,
            ..yardsticks
        };
        let bare = comparison(&bare, &players);
        assert!(
            !bare.contains("scripted") && !bare.contains("possible"),
            "{bare}"
        );
    }
}
