//! Players beside each other, for people.

use lapwing_play::metrics::{PlayMetrics, Yardsticks};

/// These players between the random one and the scripted one, a row for each, and one for the best possible if that is
/// known. The spread of the success rate is its standard error. `with penalty` is the return that training goes by, where
/// replies that cannot be read cost something.
pub fn comparison(yardsticks: &Yardsticks, players: &[(String, &PlayMetrics)]) -> String {
    const BEST: &str = "best possible";
    let mut rows: Vec<(&str, &PlayMetrics)> = Vec::new();
    rows.extend(yardsticks.random.iter().map(|play| ("random player", play)));
    rows.extend(players.iter().map(|(name, play)| (&**name, *play)));
    rows.extend(
        yardsticks
            .scripted
            .iter()
            .map(|play| ("scripted player", play)),
    );
    let names = rows.iter().map(|(name, _)| *name).chain([BEST]);
    let width = names.map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = format!(
        "{:width$}  success        return  with penalty  valid  length  episodes\n",
        ""
    );
    for (name, play) in rows {
        let (success, episodes) = (play.success_rate, play.episodes);
        let error = (success * (1.0 - success) / episodes as f64).sqrt();
        text += &format!(
            "{name:width$}  {success:.3} ± {error:.3}  {:>6.3}  {:>12.3}  {:>5.2}  {:>6.1}  {episodes:>8}\n",
            play.return_mean,
            play.composite_return_mean,
            play.valid_action_rate,
            play.episode_length_mean,
        );
    }
    if let Some(best) = yardsticks.best_possible {
        text += &format!("{BEST:width$}  {:13}  {best:>6.3}\n", "");
    }
    text
}

/// Cells under a head, the first column to the left and numbers to the right.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one with these columns.
    pub fn new(head: &[&str]) -> Table {
        Table {
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, which has a cell for each column.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        let cells = cells.into();
        assert_eq!(cells.len(), self.head.len(), "the cells of a row");
        self.rows.push(cells);
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for row in std::iter::once(&self.head).chain(&self.rows) {
            let cells = (0..row.len()).map(|column| self.padded(column, &row[column]));
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    /// For a page: a table as GitHub has them.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule: Vec<String> = (0..self.head.len())
            .map(|column| if self.is_words(column) { "---" } else { "---:" }.to_owned())
            .collect();
        let mut text = line(&self.head) + &line(&rule);
        self.rows.iter().for_each(|row| text += &line(row));
        text
    }

    fn padded(&self, column: usize, cell: &str) -> String {
        let rows = std::iter::once(&self.head).chain(&self.rows);
        let widths = rows.map(|row| row[column].chars().count());
        let width = widths.max().unwrap_or(0);
        match self.is_words(column) {
            true => format!("{cell:width$}"),
            false => format!("{cell:>width$}"),
        }
    }

    /// Whether a column holds something else than numbers.
    fn is_words(&self, column: usize) -> bool {
        let starts = self
            .rows
            .iter()
            .filter_map(|row| row[column].chars().next());
        starts.clone().count() == 0 || starts.clone().any(char::is_alphabetic)
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn a_table_reads_so() {
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
    fn a_comparison_reads_so() {
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
