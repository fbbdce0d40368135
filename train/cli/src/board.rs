//! Boards in colour: what a sign on a game's board means, and the colour of that.

use std::io::{self, Write};

use console::{Style, measure_text_width};

use crate::out;

/// What a sign stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// who sees the board
    Own,
    /// others who move
    Enemy,
    /// what is behind a head, or done with
    Body,
    /// where one wants to get, what one wants to eat
    Goal,
    /// what else is to be eaten, or to be moved
    Thing,
    /// what one does not survive, or not well
    Danger,
    /// where one falls in
    Hole,
    Wall,
    Ground,
}

impl Sign {
    /// Of this game, by either set of its signs; `None` for what does not stand on its boards.
    fn of(game: &str, cell: &str) -> Option<Sign> {
        let mut letters = cell.chars();
        let (Some(letter), None) = (letters.next(), letters.next()) else {
            return (game == "2048" && is_number(cell)).then(|| Sign::tile(cell));
        };
        Some(match (game, letter) {
            ("frozen-lake" | "snake" | "sokoban" | "2048", '_' | '.') => Sign::Ground,
            ("frozen-lake", 'P' | '@') => Sign::Own,
            ("frozen-lake", 'G' | '*') => Sign::Goal,
            ("frozen-lake", 'O' | '#') => Sign::Hole,
            ("frozen-lake", 'R' | '%') => Sign::Danger,
            ("snake", '1' | '@') => Sign::Own,
            ("snake", '2'..='9' | 'a'..='h') => Sign::Enemy,
            ("snake", 'T' | 'o') => Sign::Body,
            ("snake", 'A' | '+') => Sign::Goal,
            ("snake", 'B' | '%') => Sign::Thing,
            ("snake", 'F' | '^') => Sign::Danger,
            ("sokoban", 'P' | 'S' | '@' | '+') => Sign::Own,
            ("sokoban", 'X' | 'B') => Sign::Thing,
            ("sokoban", 'O' | 'T') => Sign::Goal,
            ("sokoban", 'V' | '*') => Sign::Body,
            ("sokoban", '#' | 'W') => Sign::Wall,
            ("2048", 'A'..='Z' | '0'..='9') => Sign::tile(cell),
            _ => return None,
        })
    }

    /// A tile of 2048: equal ones are of one colour, and those that merge next of another.
    fn tile(cell: &str) -> Sign {
        let height = match cell.parse::<u64>() {
            Ok(number) => number.max(1).ilog2(),
            Err(_) => u32::from(cell.as_bytes()[0] - b'A' + 1),
        };
        let colours = [
            Sign::Body,
            Sign::Own,
            Sign::Goal,
            Sign::Thing,
            Sign::Enemy,
            Sign::Danger,
        ];
        colours[(height.max(1) as usize - 1) % colours.len()]
    }

    fn style(self) -> Style {
        match self {
            Sign::Own => Style::new().cyan().bold(),
            Sign::Enemy => Style::new().magenta().bold(),
            Sign::Body => Style::new(),
            Sign::Goal => Style::new().green().bold(),
            Sign::Thing => Style::new().yellow().bold(),
            Sign::Danger => Style::new().red().bold(),
            Sign::Hole => Style::new().blue().bold(),
            Sign::Wall => Style::new().blue(),
            Sign::Ground => Style::new().dim(),
        }
    }
}

fn is_number(cell: &str) -> bool {
    !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit())
}

/// The cells of a line that is a row of a board: signs with spaces between.
fn row<'a>(game: &str, line: &'a str) -> Option<Vec<(&'a str, Sign)>> {
    let cell = |cell: &'a str| Some((cell, Sign::of(game, cell)?));
    let cells: Vec<_> = line.split_whitespace().map(cell).collect::<Option<_>>()?;
    (cells.len() > 1).then_some(cells)
}

/// A text that may hold boards of this game, in colour, and made [`out::visible`]. What a chat template puts around a
/// message, in tags, does not hide a row.
pub fn painted(game: &str, text: &str, in_colour: bool) -> String {
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
        match row(game, &line[from..to]) {
            None => painted += &line[from..to],
            Some(cells) => {
                let mut rest = &line[from..to];
                for (cell, sign) in cells {
                    let (spaces, after) = rest.split_once(cell).unwrap_or((rest, ""));
                    let style = sign.style().force_styling(in_colour);
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

/// The text with the columns of its boards below each other, where cells are of different widths.
pub fn aligned(game: &str, text: &str) -> String {
    let rows = text.lines().filter_map(|line| row(game, line));
    let widths = rows.flat_map(|cells| cells.into_iter().map(|(cell, _)| cell.len()));
    let width = widths.max().unwrap_or(1);
    let line = |line: &str| match row(game, line) {
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

/// How many rows of a window the text takes; `None` if a board in it is wider than that, so that it would be torn.
pub fn height(game: &str, text: &str, columns: usize) -> Option<usize> {
    let rows = |line: &str| {
        let width = measure_text_width(line);
        let torn = width > columns && row(game, line).is_some();
        (!torn).then(|| width.div_ceil(columns).max(1))
    };
    text.lines().map(rows).sum()
}

/// Paints what is written through it.
#[derive(Debug)]
pub struct Painted<W> {
    out: W,
    game: String,
    in_colour: bool,
}

impl<W: Write> Painted<W> {
    /// Boards of this game.
    pub fn new(out: W, game: &str, in_colour: bool) -> Painted<W> {
        let game = game.to_owned();
        Painted {
            out,
            game,
            in_colour,
        }
    }
}

impl<W: Write> Write for Painted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // `write!` hands over whole texts.
        let text = painted(&self.game, &String::from_utf8_lossy(bytes), self.in_colour);
        self.out.write_all(text.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use lapwing_env::GAMES;

    use super::*;

    /// The sentences of a game without boards stay as they are; of those with one, every row is painted, by either set of
    /// signs.
    #[test]
    fn every_board_of_every_game_is_painted() {
        for kind in GAMES {
            let symbols = kind.probe("symbols").map(|(_, options)| options);
            let variants = kind.variants.iter().map(|variant| variant.options);
            let variants = variants.map(|options| serde_json::from_str(options).unwrap());
            for options in variants.chain(symbols) {
                let scenario = (kind.configure)(&options).unwrap();
                let text = scenario.start(3, 3).unwrap().observe(0).unwrap();
                let rows = text.lines().filter(|line| row(kind.name, line).is_some());
                let expected = match kind.name {
                    "rooms" => 0,
                    _ => text.lines().count(),
                };
                assert_eq!(rows.count(), expected, "{} {options}:\n{text}", kind.name);
                let shown = painted(kind.name, &text, true);
                assert_eq!(console::strip_ansi_codes(&shown), text);
                assert_eq!(shown != text, expected > 0);
                assert_eq!(painted(kind.name, &text, false), text);
            }
        }
    }

    #[test]
    fn signs_have_the_colour_of_what_they_mean() {
        let text = "<|user|>P _\nO G<|assistant|>\nGo to G.\u{1b}[2J";
        insta::assert_snapshot!(painted("frozen-lake", text, true).escape_debug(), @r#"<|user|>\u{1b}[36m\u{1b}[1mP\u{1b}[0m \u{1b}[2m_\u{1b}[0m\n\u{1b}[34m\u{1b}[1mO\u{1b}[0m \u{1b}[32m\u{1b}[1mG\u{1b}[0m<|assistant|>\nGo to G.\\u{1b}[2J"#);
        assert_eq!(painted("pong", "P _", true), "P _");
    }

    #[test]
    fn tiles_stand_below_each_other() {
        let board = aligned("2048", "2 _\n16 4");
        assert_eq!(board, " 2  _\n16  4");
        let shown = painted("2048", &board, true);
        assert_eq!(
            shown.matches("\u{1b}[0m").count(),
            3,
            "a 2 is plain: {shown:?}"
        );
        assert_eq!(console::strip_ansi_codes(&shown), board);
        assert_eq!(aligned("snake", "1 _\n_ A"), "1 _\n_ A");
    }

    #[test]
    fn a_board_is_not_torn_but_sentences_are() {
        assert_eq!(height("snake", "1 _ _\n_ _ A", 5), Some(2));
        assert_eq!(height("snake", "1 _ _\n_ _ A", 4), None);
        assert_eq!(height("rooms", "You see a wall", 5), Some(3));
    }
}
