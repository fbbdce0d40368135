//! A person: shown what an agent sees, asked for a word.

use std::io::{BufRead, Write};

use crate::Error;
use crate::play::players::scripted::word;
use crate::play::{Ask, Player, Reply};

/// A person who reads and writes lines.
pub struct Human<R, W> {
    input: R,
    out: W,
    /// After so many turns the referee stops.
    limit: usize,
}

impl<R: BufRead, W: Write> Human<R, W> {
    /// Reads answers from `input` and writes to `out`; `limit` is the referee's step limit, which is shown.
    pub fn new(input: R, out: W, limit: usize) -> Human<R, W> {
        Human { input, out, limit }
    }

    /// Asks until the answer is an action, or the first letters of only one.
    fn ask(&mut self, ask: &Ask<'_>) -> Result<usize, Error> {
        writeln!(self.out, "\n{}", ask.observation)?;
        loop {
            write!(self.out, "turn {}/{}> ", ask.turn + 1, self.limit)?;
            self.out.flush()?;
            let mut line = String::new();
            let read = self.input.read_line(&mut line)?;
            let said = line.trim().to_lowercase();
            // A whole word before what begins like it.
            let whole = ask.actions.iter().position(|action| *action == said);
            let leaves = ["quit", "q"].contains(&&*said) && whole.is_none();
            if read == 0 || leaves {
                return Err(Error::Left);
            }
            if said == "?" {
                writeln!(self.out, "{}", help(ask.actions))?;
                continue;
            }
            let begins: Vec<usize> = (0..ask.actions.len())
                .filter(|&i| ask.actions[i].starts_with(&said))
                .collect();
            match (whole, &begins[..]) {
                (Some(action), _) => return Ok(action),
                (None, [action]) if !said.is_empty() => return Ok(*action),
                _ => {
                    let words = ask.actions.join(", ");
                    writeln!(self.out, "`{said}` is none of {words} (? helps, q quits)")?;
                }
            }
        }
    }
}

/// What can be said.
pub fn help(actions: &[String]) -> String {
    let words = actions.join(", ");
    format!("Say {words}, or their first letters; ? shows this, q quits.")
}

impl<R: BufRead, W: Write> Player for Human<R, W> {
    fn act(&mut self, asks: &[Ask<'_>]) -> Result<Vec<Reply>, Error> {
        asks.iter()
            .map(|ask| Ok(word(ask, self.ask(ask)?)))
            .collect()
    }
}
