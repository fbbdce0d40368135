//! A human player, who sees an agent's observation and enters an action or, in some games, any text.

use std::io::{self, Write};

use lapwing_env::Scenario;

use crate::PlayError;
use crate::players::scripted::word;
use crate::{ActionRequest, Player, Reply};

/// A person at a terminal.
pub struct HumanPlayer<'a, R, W, S> {
    /// The game.
    pub scenario: &'a dyn Scenario,
    /// Reads a line; an empty text is the end of the input.
    pub read_line: R,
    /// Where questions and answers to invalid input are written.
    pub out: W,
    /// Displays the observation before each question.
    pub show: S,
}

impl<R, W: Write, S> HumanPlayer<'_, R, W, S>
where
    R: FnMut() -> io::Result<String>,
    S: FnMut(&mut W, &ActionRequest<'_>) -> io::Result<()>,
{
    /// Asks until the answer is an action or an unambiguous prefix of one; or, in a game of any text, until it is not
    /// empty.
    fn ask(&mut self, ask: &ActionRequest<'_>) -> Result<Reply, PlayError> {
        (self.show)(&mut self.out, ask)?;
        loop {
            let limit = self.scenario.step_limit();
            write!(self.out, "turn {}/{limit}> ", ask.turn + 1)?;
            self.out.flush()?;
            let line = (self.read_line)()?;
            if line.is_empty() {
                return Err(PlayError::Left);
            }
            if !self.scenario.takes_text() {
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
            writeln!(self.out, "enter some text (the end of the input quits)")?;
        }
    }

    /// Returns the action that the answer names; `None` if the answer is not an action.
    fn action(&mut self, ask: &ActionRequest<'_>, said: &str) -> Result<Option<usize>, PlayError> {
        // A complete word wins over a prefix.
        let whole = ask.actions.iter().position(|action| action == said);
        if ["quit", "q"].contains(&said) && whole.is_none() {
            return Err(PlayError::Left);
        }
        if said == "?" {
            writeln!(self.out, "{}", help(ask.actions))?;
            return Ok(None);
        }
        let begins: Vec<usize> = (0..ask.actions.len())
            .filter(|&i| ask.actions[i].starts_with(said))
            .collect();
        match (whole, &begins[..]) {
            (Some(action), _) => Ok(Some(action)),
            (None, [action]) if !said.is_empty() => Ok(Some(*action)),
            _ => {
                let words = ask.actions.join(", ");
                writeln!(self.out, "`{said}` is none of {words} (? helps, q quits)")?;
                Ok(None)
            }
        }
    }
}

/// The valid answers.
pub fn help(actions: &[String]) -> String {
    let words = actions.join(", ");
    format!("Enter {words}, or their first letters; ? shows this, q quits.")
}

impl<R, W: Write, S> Player for HumanPlayer<'_, R, W, S>
where
    R: FnMut() -> io::Result<String>,
    S: FnMut(&mut W, &ActionRequest<'_>) -> io::Result<()>,
{
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        asks.iter().map(|ask| self.ask(ask)).collect()
    }
}
