//! A human player at a terminal.

use std::io::{self, BufRead, Write};

use lapwing_env::Scenario;

use crate::PlayError;
use crate::players::scripted::word;
use crate::{ActionRequest, Player, Reply};

/// A player that reads lines of input.
pub struct HumanPlayer<R, W, S> {
    input: R,
    out: W,
    /// Shows the observation.
    show: S,
    /// The step limit.
    limit: usize,
    takes_text: bool,
}

impl<R: BufRead, W: Write, S: FnMut(&mut W, &ActionRequest<'_>) -> io::Result<()>>
    HumanPlayer<R, W, S>
{
    /// Reads answers from `input` and writes to `out`. `show` writes the observation before each question.
    pub fn new(scenario: &dyn Scenario, input: R, out: W, show: S) -> HumanPlayer<R, W, S> {
        HumanPlayer {
            input,
            out,
            show,
            limit: scenario.step_limit(),
            takes_text: scenario.takes_text(),
        }
    }

    /// Asks until the input is an action, a unique prefix of one, or any text if the game takes free text.
    fn ask(&mut self, ask: &ActionRequest<'_>) -> Result<Reply, PlayError> {
        (self.show)(&mut self.out, ask)?;
        loop {
            write!(self.out, "turn {}/{}> ", ask.turn + 1, self.limit)?;
            self.out.flush()?;
            let mut line = String::new();
            if self.input.read_line(&mut line)? == 0 {
                return Err(PlayError::Left);
            }
            if !self.takes_text {
                match self.action(ask, &line.trim().to_lowercase())? {
                    Some(action) => return Ok(word(ask, action)),
                    None => continue,
                }
            }
            let text = line.trim();
            if !text.is_empty() {
                return Ok(Reply {
                    action: Some(0),
                    said: Some(text.to_owned()),
                    text: text.to_owned(),
                    ..Reply::default()
                });
            }
            writeln!(self.out, "say something (the end of the input leaves)")?;
        }
    }

    /// Returns the action, or `None` if the input was a command or is invalid.
    fn action(&mut self, ask: &ActionRequest<'_>, word: &str) -> Result<Option<usize>, PlayError> {
        // A whole word takes precedence over a prefix.
        let exact = ask.actions.iter().position(|action| action == word);
        if ["quit", "q"].contains(&word) && exact.is_none() {
            return Err(PlayError::Left);
        }
        if word == "?" {
            writeln!(self.out, "{}", help(ask.actions))?;
            return Ok(None);
        }
        let begins: Vec<usize> = (0..ask.actions.len())
            .filter(|&i| ask.actions[i].starts_with(word))
            .collect();
        match (exact, &begins[..]) {
            (Some(action), _) => Ok(Some(action)),
            (None, [action]) if !word.is_empty() => Ok(Some(*action)),
            _ => {
                let words = ask.actions.join(", ");
                writeln!(self.out, "`{word}` is none of {words} (? helps, q quits)")?;
                Ok(None)
            }
        }
    }
}

/// Writes the observation below the previous one.
///
/// # Errors
/// If it cannot be written.
pub fn in_lines<W: Write>(out: &mut W, ask: &ActionRequest<'_>) -> io::Result<()> {
    writeln!(out, "\n{}", ask.observation)
}

/// Returns the help text.
pub fn help(actions: &[String]) -> String {
    let words = actions.join(", ");
    format!("Say {words}, or their first letters; ? shows this, q quits.")
}

impl<R: BufRead, W: Write, S: FnMut(&mut W, &ActionRequest<'_>) -> io::Result<()>> Player
    for HumanPlayer<R, W, S>
{
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        asks.iter().map(|ask| self.ask(ask)).collect()
    }
}
