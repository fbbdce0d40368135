//! A game on the whole of the terminal, drawn again in the same place at every turn.

use std::cell::Cell;
use std::io;

use console::{Style, Term};
use lapwing_env::{Legend, Scenario};
use lapwing_play::{Ask, Turn};

use crate::{board, out};

/// What is said of a game for several.
pub const OTHERS: &str = "The game's own player plays the other sides.";

/// What does not change while somebody plays.
#[derive(Debug)]
pub struct Screen {
    /// the roles of the signs, which have colours
    pub legend: Legend,
    /// what the player should know, for windows that have room for it
    pub rules: String,
    /// which keys do what
    pub keys: String,
    /// after so many turns the game ends
    pub limit: usize,
    /// how the player has done so far, if they have played before
    pub record: String,
    /// whether there are colours
    pub in_colour: bool,
    /// Whether something is drawn: what was on the terminal before is to be scrolled away, not overwritten.
    pub is_drawn: Cell<bool>,
}

impl Screen {
    /// For this game.
    pub fn new(scenario: &dyn Scenario, keys: String, record: String) -> Screen {
        Screen {
            legend: scenario.legend(),
            rules: match scenario.agents() {
                1 => scenario.rules(),
                _ => format!("{}\n{OTHERS}", scenario.rules()),
            },
            keys,
            limit: scenario.step_limit(),
            record,
            in_colour: console::colors_enabled(),
            is_drawn: Cell::new(false),
        }
    }

    /// Draws what the player sees when asked, by the size that the window has now. Where there is no room, it goes below
    /// what is there, in plain lines.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub fn draw(&self, term: &Term, ask: &Ask<'_>) -> io::Result<()> {
        let status = self.status(ask.past);
        self.show(term, ask.observation, &status)
    }

    /// Draws how it ended.
    ///
    /// # Errors
    /// If the terminal cannot be written to.
    pub fn end(&self, term: &Term, last: &str, past: &[Turn]) -> io::Result<()> {
        self.show(term, last, &self.status(past))
    }

    fn show(&self, term: &Term, observation: &str, status: &str) -> io::Result<()> {
        let (rows, columns) = term.size();
        match self.frame(rows.into(), columns.into(), observation, status) {
            Some(frame) => {
                if !self.is_drawn.replace(true) {
                    term.write_str(&"\n".repeat(rows.into()))?;
                }
                term.move_cursor_to(0, 0)?;
                term.clear_to_end_of_screen()?;
                term.write_str(&frame)
            }
            None => {
                if !self.is_drawn.replace(true) {
                    let rules = format!("{}\n\n{}\n", self.rules, self.keys);
                    term.write_str(&out::visible(&rules))?;
                }
                let seen = format!("\n{observation}\n{status}\n");
                term.write_str(&out::visible(&seen))
            }
        }
    }

    /// The score so far, what the last turn brought, and how many turns are left.
    fn status(&self, past: &[Turn]) -> String {
        let score = rounded(past.iter().map(|turn| turn.reward).sum());
        let left = self.limit.saturating_sub(past.len());
        let turns = if left == 1 { "turn" } else { "turns" };
        let mut status = format!("score {score}, {left} {turns} left");
        if let Some(turn) = past.last() {
            let said: String = turn.text.chars().take(30).collect();
            status += &format!("; {}: {:+}", out::line(&said), rounded(turn.reward));
        }
        status + &self.record
    }

    /// What is drawn in a window of this size, with a row to spare for what is typed; `None` if there is no room.
    fn frame(
        &self,
        rows: usize,
        columns: usize,
        observation: &str,
        status: &str,
    ) -> Option<String> {
        let height = |text: &str| board::height(self.legend, text, columns.max(1));
        let observation = board::aligned(self.legend, &out::visible(observation));
        // What is typed, and an answer to what cannot be read.
        let mut free = rows.checked_sub(height(&observation)? + height(status)? + 3)?;
        let mut frame = String::new();
        for text in [&self.rules, &self.keys] {
            let text = out::visible(text);
            // With an empty line below it.
            let needed = height(&text)? + 1;
            if let Some(less) = free.checked_sub(needed) {
                free = less;
                frame += &format!("{text}\n\n");
            }
        }
        frame += &board::painted(self.legend, &observation, self.in_colour);
        let bold = Style::new().bold().force_styling(self.in_colour);
        Some(frame + &format!("\n\n{}\n", bold.apply_to(status)))
    }
}

/// Without the last digits, in which a sum of decimal fractions is off, and without the sign of zero, which a sum of nothing
/// has.
pub fn rounded(total: f64) -> f64 {
    (total * 1e9).round() / 1e9 + 0.0
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn nothing_is_scored_without_a_sign() {
        let none: f64 = [].iter().sum();
        assert_eq!(rounded(none).to_string(), "0");
        assert_eq!(rounded(0.1 + 0.2).to_string(), "0.3");
    }

    fn screen() -> Screen {
        let game = lapwing_env::find("2048").unwrap();
        let scenario = (game.configure)(&serde_json::json!({})).unwrap();
        Screen {
            legend: scenario.legend(),
            rules: "Slide the tiles.".to_owned(),
            keys: "Keys: the arrows.".to_owned(),
            limit: 20,
            record: "; mean of 3 games 0.5".to_owned(),
            in_colour: false,
            is_drawn: Cell::new(false),
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
        let screen = screen();
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
    fn what_a_stranger_wrote_moves_no_cursor() {
        let frame = screen().frame(24, 80, "\u{1b}[2J", "");
        assert!(!frame.unwrap().contains('\u{1b}'));
    }
}
