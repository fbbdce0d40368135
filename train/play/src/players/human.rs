//! A human player, who sees an agent's observation and enters an action or, in some games, any text.

use std::io::{self, BufRead, Write};

use lapwing_env::Scenario;

use crate::PlayError;
use crate::players::scripted::word;
use crate::{ActionRequest, Player, Reply};

/// A person at a terminal.
pub struct HumanPlayer<R, W, S> {
    input: R,
    out: W,
    /// displays observations
    show: S,
    /// The step limit of an episode.
    limit: usize,
    takes_text: bool,
}

impl<R: BufRead, W: Write, S: FnMut(&mut W, &ActionRequest<'_>) -> io::Result<()>>
    HumanPlayer<R, W, S>
{
    /// Reads answers from `input` and writes to `out`. `show` displays the observation before each question.
    pub fn new(scenario: &dyn Scenario, input: R, out: W, show: S) -> HumanPlayer<R, W, S> {
        HumanPlayer {
            input,
            out,
            show,
            limit: scenario.step_limit(),
            takes_text: scenario.takes_text(),
        }
    }

    /// Asks until the answer is an action or an unambiguous prefix of one; or, in a game of any text, until it is not
    /// empty.
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

impl<R: BufRead, W: Write, S: FnMut(&mut W, &ActionRequest<'_>) -> io::Result<()>> Player
    for HumanPlayer<R, W, S>
{
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        asks.iter().map(|ask| self.ask(ask)).collect()
    }
}
