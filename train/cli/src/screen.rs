//! A game that fills the terminal, redrawn in place at every turn.

use std::cell::Cell;
use std::io;

use console::{Style, Term};
use lapwing_env::Scenario;
use lapwing_play::Turn;

use crate::{board, out};

/// Note on games of several agents.
pub const OTHERS: &str = "The game's own player plays the other sides.";

/// The constant parts of the screen.
#[derive(Debug)]
pub struct Screen<'a> {
    scenario: &'a dyn Scenario,
    rules: String,
    keys: String,
    /// Mean score of earlier games, appended to the status line.
    scores: String,
    in_colour: bool,
    /// Whether the screen is drawn. The first time, the old content of the terminal is scrolled away.
    is_drawn: Cell<bool>,
}

impl Screen<'_> {
    pub fn new(scenario: &dyn Scenario, keys: String, scores: String) -> Screen<'_> {
        let rules = match scenario.agents() {
            1 => scenario.rules(),
            _ => format!("{}\n{OTHERS}", scenario.rules()),
        };
        Screen {
            scenario,
            rules,
            keys,
            scores,
            in_colour: console::colors_enabled(),
            is_drawn: Cell::new(false),
        }
    }

    /// Draws the game after these turns. A window that is too small gets plain lines below its content.
    pub fn draw(&self, term: &Term, observation: &str, past: &[Turn]) -> io::Result<()> {
        let status = self.status(past);
        let (rows, columns) = term.size();
        let is_drawn = self.is_drawn.replace(true);
        match self.frame(rows.into(), columns.into(), observation, &status) {
            Some(frame) => {
                if !is_drawn {
                    term.write_str(&"\n".repeat(rows.into()))?;
                }
                term.move_cursor_to(0, 0)?;
                term.clear_to_end_of_screen()?;
                term.write_str(&frame)
            }
            None => {
                if !is_drawn {
                    let rules = format!("{}\n\n{}\n", self.rules, self.keys);
                    term.write_str(&out::visible(&rules))?;
                }
                let seen = format!("\n{observation}\n{status}\n");
                term.write_str(&out::visible(&seen))
            }
        }
    }

    /// Returns the status line: score, turns left, and the reward of the last turn.
    fn status(&self, past: &[Turn]) -> String {
        let score = rounded(past.iter().map(|turn| turn.reward).sum());
        let left = counted(
            self.scenario.step_limit().saturating_sub(past.len()),
            "turn",
        );
        let mut status = format!("score {score}, {left} left");
        if let Some(turn) = past.last() {
            let reply: String = turn.text.chars().take(30).collect();
            status += &format!("; {}: {:+}", out::line(&reply), rounded(turn.reward));
        }
        status + &self.scores
    }

    /// Returns the content of a window of this size, without a row for the input; `None` if there is no room.
    fn frame(
        &self,
        rows: usize,
        columns: usize,
        observation: &str,
        status: &str,
    ) -> Option<String> {
        let legend = self.scenario.legend();
        let height = |text: &str| board::height(legend, text, columns.max(1));
        let observation = board::aligned(legend, &out::visible(observation));
        // Three rows: the input, an answer to an invalid input, and an empty line.
        let mut free = rows.checked_sub(height(&observation)? + height(status)? + 3)?;
        let mut frame = String::new();
        for text in [&self.rules, &self.keys] {
            let text = out::visible(text);
            // With an empty line below.
            if let Some(rest) = free.checked_sub(height(&text)? + 1) {
                free = rest;
                frame += &format!("{text}\n\n");
            }
        }
        frame += &board::painted(legend, &observation, self.in_colour);
        let bold = Style::new().bold().force_styling(self.in_colour);
        Some(frame + &format!("\n\n{}\n", bold.apply_to(status)))
    }
}

/// Removes the rounding error of a sum of decimal fractions, and the sign of zero.
pub fn rounded(total: f64) -> f64 {
    (total * 1e9).round() / 1e9 + 0.0
}

/// Returns a number with its noun, in the plural if needed.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Formats a time in its two largest units.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.round().max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn zero_has_no_sign() {
        let none: f64 = [].iter().sum();
        assert_eq!(rounded(none).to_string(), "0");
        assert_eq!(rounded(0.1 + 0.2).to_string(), "0.3");
    }

    fn game() -> Box<dyn Scenario> {
        let game = lapwing_env::find("2048").unwrap();
        (game.configure)(&serde_json::json!({ "step_limit": 20 })).unwrap()
    }

    fn screen(scenario: &dyn Scenario) -> Screen<'_> {
        let scores = "; mean of 3 games 0.5".to_owned();
        Screen {
            rules: "Slide the tiles.".to_owned(),
            in_colour: false,
            ..Screen::new(scenario, "Keys: the arrows.".to_owned(), scores)
        }
    }

    fn turn(text: &str, reward: f64) -> Turn {
        Turn {
            text: text.to_owned(),
            reward,
            ..Turn::default()
        }
    }

    #[test]
    fn a_window_shows_what_it_has_room_for() {
        let game = game();
        let screen = screen(&*game);
        let status = screen.status(&[turn("up", 0.1), turn("left", 0.2)]);
        let frame = |rows, columns| screen.frame(rows, columns, "2 _\n16 4", &status);
        assert_snapshot!(frame(24, 80).unwrap(), @"
        Slide the tiles.

        Keys: the arrows.

         2  _
        16  4

        score 0.3, 18 turns left; left: +0.2; mean of 3 games 0.5
        ");
        assert_snapshot!(frame(9, 80).unwrap(), @"
        Slide the tiles.

         2  _
        16  4

        score 0.3, 18 turns left; left: +0.2; mean of 3 games 0.5
        ");
        assert_eq!(frame(5, 80), None);
        assert_eq!(frame(24, 4), None);
    }

    #[test]
    fn untrusted_text_moves_no_cursor() {
        let frame = screen(&*game()).frame(24, 80, "\u{1b}[2J", "");
        assert!(!frame.unwrap().contains('\u{1b}'));
    }
}
