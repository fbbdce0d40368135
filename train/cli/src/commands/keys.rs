//! Keys as they are pressed, as the lines that would say the same.

use std::io::{self, BufRead, Read, Write};

use console::Key;

/// Lines made of keys: an arrow says its direction, `q` and `?` themselves, and letters a word as soon as only one action
/// begins so; Enter ends a line that says something else. Words that begin with `q` come before the quitting.
pub struct Keys<'a, K, W> {
    key: K,
    /// shows what was pressed
    echo: W,
    actions: &'a [String],
    /// what is left to be read of the line
    line: Vec<u8>,
}

impl<'a, K: FnMut() -> io::Result<Key>, W: Write> Keys<'a, K, W> {
    /// Reads keys with `key`, for these actions.
    pub fn new(key: K, echo: W, actions: &'a [String]) -> Keys<'a, K, W> {
        Keys {
            key,
            echo,
            actions,
            line: Vec::new(),
        }
    }

    /// The next line; empty at the end of the input.
    fn next(&mut self) -> io::Result<String> {
        let mut line = String::new();
        loop {
            match (self.key)() {
                Ok(Key::ArrowLeft) => return self.say("left", &line),
                Ok(Key::ArrowRight) => return self.say("right", &line),
                Ok(Key::ArrowUp) => return self.say("up", &line),
                Ok(Key::ArrowDown) => return self.say("down", &line),
                Ok(Key::Enter) => return self.say(&line, &line),
                Ok(Key::Escape | Key::CtrlC | Key::Char('\u{4}')) => {
                    return self.say("quit", &line);
                }
                Ok(Key::Backspace) => {
                    if line.pop().is_some() {
                        write!(self.echo, "\u{8} \u{8}")?;
                    }
                }
                Ok(Key::Char(letter)) if !letter.is_control() => {
                    line.extend(letter.to_lowercase());
                    let actions = self.actions.iter();
                    let begin: Vec<&String> = actions.filter(|a| a.starts_with(&line)).collect();
                    match (&begin[..], &*line) {
                        ([action], _) => {
                            write!(self.echo, "{}", &action[line.len() - letter.len_utf8()..])?;
                            return self.say(action, action);
                        }
                        ([], "q" | "?") => {
                            write!(self.echo, "{letter}")?;
                            return self.say(&line, &line);
                        }
                        _ => write!(self.echo, "{letter}")?,
                    }
                }
                Ok(_) => (),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(String::new()),
                Err(e) => return Err(e),
            }
            self.echo.flush()?;
        }
    }

    /// The line that says this; `shown` of it is on the screen.
    fn say(&mut self, text: &str, shown: &str) -> io::Result<String> {
        let rest = text.strip_prefix(shown).unwrap_or(text);
        writeln!(self.echo, "{rest}")?;
        Ok(format!("{text}\n"))
    }
}

impl<K: FnMut() -> io::Result<Key>, W: Write> Read for Keys<'_, K, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl<K: FnMut() -> io::Result<Key>, W: Write> BufRead for Keys<'_, K, W> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.line.is_empty() {
            self.line = self.next()?.into_bytes();
        }
        Ok(&self.line)
    }

    fn consume(&mut self, count: usize) {
        self.line.drain(..count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that these keys make, and what is echoed.
    fn lines(actions: &[&str], keys: &[Key]) -> (Vec<String>, String) {
        let actions: Vec<String> = actions.iter().map(|&a| a.to_owned()).collect();
        let mut keys = keys.iter().cloned();
        let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut echo = Vec::new();
        let keys = Keys::new(|| keys.next().ok_or_else(end), &mut echo, &actions);
        let lines = keys.lines().map(Result::unwrap).collect();
        (lines, String::from_utf8(echo).unwrap())
    }

    const MOVES: [&str; 4] = ["left", "down", "right", "up"];

    #[test]
    fn keys_say_words() {
        let keys = [
            Key::ArrowUp,
            Key::Char('L'),
            Key::Char('?'),
            Key::Tab,
            Key::Char('q'),
        ];
        let (said, echo) = lines(&MOVES, &keys);
        assert_eq!(said, ["up", "left", "?", "q"]);
        assert_eq!(echo, "up\nleft\n?\nq\n");
    }

    #[test]
    fn letters_that_do_not_suffice_are_collected() {
        let actions = ["pull", "push", "quiet"];
        let typed = |text: &str| -> Vec<Key> { text.chars().map(Key::Char).collect() };
        assert_eq!(lines(&actions, &typed("pus")).0, ["push"]);
        assert_eq!(lines(&actions, &typed("q")).0, ["quiet"]);
        let keys = [&typed("px")[..], &[Key::Enter, Key::Escape]].concat();
        assert_eq!(lines(&actions, &keys).0, ["px", "quit"]);
        let keys = [&typed("pu")[..], &[Key::Backspace, Key::Enter]].concat();
        let (said, echo) = lines(&actions, &keys);
        assert_eq!((said, &*echo), (vec!["p".to_owned()], "pu\u{8} \u{8}\n"));
    }
}
