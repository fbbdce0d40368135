//! Boards in colour: each cell has the colour of its role.

use console::{Style, measure_text_width};
use lapwing_env::{Legend, Role};

use crate::out;

fn style(role: Role) -> Style {
    match role {
        Role::Player => Style::new().cyan().bold(),
        Role::Opponent => Style::new().magenta().bold(),
        Role::Body | Role::Done => Style::new(),
        Role::Goal => Style::new().green().bold(),
        Role::Item => Style::new().yellow().bold(),
        Role::Hazard => Style::new().red().bold(),
        Role::Hole => Style::new().blue().bold(),
        Role::Wall => Style::new().blue(),
        Role::Floor => Style::new().dim(),
        // Equal tiles have the same colour, and the tile that they merge into has another.
        Role::Tile(level) => {
            use Role::{Body, Goal, Hazard, Item, Opponent, Player};
            let colours = [Body, Player, Goal, Item, Opponent, Hazard];
            style(colours[(level.max(1) as usize - 1) % colours.len()])
        }
    }
}

/// Returns the cells of a line that is a row of a board: signs with spaces between.
fn row(legend: Legend, line: &str) -> Option<Vec<(&str, Role)>> {
    let cell = |cell| Some((cell, legend(cell)?));
    let cells: Vec<_> = line.split_whitespace().map(cell).collect::<Option<_>>()?;
    (cells.len() > 1).then_some(cells)
}

/// Returns a text with its boards in colour, made [`out::visible`]. The tags that a chat template puts around a message do
/// not hide a row.
pub fn painted(legend: Legend, text: &str, in_colour: bool) -> String {
    let text = out::visible(text);
    let mut painted = String::with_capacity(2 * text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let from = line.rfind("|>").filter(|at| at + 2 < line.len());
        let from = from.map_or(0, |at| at + 2);
        let to = line[from..].find("<|").map_or(line.len(), |at| from + at);
        painted += &line[..from];
        match row(legend, &line[from..to]) {
            None => painted += &line[from..to],
            Some(cells) => {
                let mut rest = &line[from..to];
                for (cell, role) in cells {
                    let (spaces, after) = rest.split_once(cell).unwrap_or((rest, ""));
                    let style = style(role).force_styling(in_colour);
                    painted += &format!("{spaces}{}", style.apply_to(cell));
                    rest = after;
                }
                painted += rest;
            }
        }
        painted += &line[to..];
        painted += end;
    }
    painted
}

/// Returns the text with the columns of its boards aligned.
pub fn aligned(legend: Legend, text: &str) -> String {
    let rows = text.lines().filter_map(|line| row(legend, line));
    let widths = rows.flat_map(|cells| cells.into_iter().map(|(cell, _)| cell.len()));
    let width = widths.max().unwrap_or(1);
    let line = |line: &str| match row(legend, line) {
        Some(cells) if width > 1 => {
            let cells: Vec<String> = cells
                .iter()
                .map(|(cell, _)| format!("{cell:>width$}"))
                .collect();
            cells.join(" ")
        }
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the number of window rows that the text takes; `None` if the window would break the rows of a board.
pub fn height(legend: Legend, text: &str, columns: usize) -> Option<usize> {
    let rows = |line: &str| {
        let width = measure_text_width(line);
        let broken = width > columns && row(legend, line).is_some();
        (!broken).then(|| width.div_ceil(columns).max(1))
    };
    text.lines().map(rows).sum()
}

#[cfg(test)]
mod tests {
    use lapwing_env::{GAMES, find};
    use serde_json::json;

    use super::*;

    fn legend(game: &str) -> Legend {
        let scenario = (find(game).unwrap().configure)(&json!({})).unwrap();
        scenario.legend()
    }

    /// Every row of a board has colours, with both sets of signs. Sentences have none.
    #[test]
    fn every_board_of_every_game_is_painted() {
        for kind in GAMES {
            let symbols = kind.probe("symbols").map(|probe| (probe.options)());
            let variants = kind.variants.iter().map(|variant| (variant.options)());
            for options in variants.chain(symbols) {
                let scenario = (kind.configure)(&options).unwrap();
                let text = scenario.start(3, 3).unwrap().observe(0).unwrap();
                let legend = scenario.legend();
                let rows = text.lines().filter(|line| row(legend, line).is_some());
                let expected = match kind.name {
                    "rooms" => 0,
                    _ => text.lines().count(),
                };
                assert_eq!(rows.count(), expected, "{} {options}:\n{text}", kind.name);
                let shown = painted(legend, &text, true);
                assert_eq!(console::strip_ansi_codes(&shown), text);
                assert_eq!(shown != text, expected > 0);
                assert_eq!(painted(legend, &text, false), text);
            }
        }
    }

    #[test]
    fn signs_have_the_colour_of_what_they_mean() {
        let text = "<|user|>P _\nO G<|assistant|>\nGo to G.\u{1b}[2J";
        insta::assert_snapshot!(painted(legend("frozen-lake"), text, true).escape_debug(), @r#"<|user|>\u{1b}[36m\u{1b}[1mP\u{1b}[0m \u{1b}[2m_\u{1b}[0m\n\u{1b}[34m\u{1b}[1mO\u{1b}[0m \u{1b}[32m\u{1b}[1mG\u{1b}[0m<|assistant|>\nGo to G.\\u{1b}[2J"#);
        assert_eq!(painted(|_| None, "P _", true), "P _");
    }

    #[test]
    fn tiles_stand_below_each_other() {
        let board = aligned(legend("2048"), "2 _\n16 4");
        assert_eq!(board, " 2  _\n16  4");
        let shown = painted(legend("2048"), &board, true);
        assert_eq!(
            shown.matches("\u{1b}[0m").count(),
            3,
            "a 2 is plain: {shown:?}"
        );
        assert_eq!(console::strip_ansi_codes(&shown), board);
        assert_eq!(aligned(legend("snake"), "1 _\n_ A"), "1 _\n_ A");
    }

    #[test]
    fn a_board_is_not_broken_but_sentences_are() {
        assert_eq!(height(legend("snake"), "1 _ _\n_ _ A", 5), Some(2));
        assert_eq!(height(legend("snake"), "1 _ _\n_ _ A", 4), None);
        assert_eq!(height(legend("rooms"), "You see a wall", 5), Some(3));
    }
}
