//! Keys as they are pressed, as the lines that would say the same.

use std::io::{self, BufRead, Read, Write};

use console::Key;

/// The actions that an arrow stands for, the first of them that the game has.
const ARROWS: [(Key, char, &[&str]); 4] = [
    (Key::ArrowLeft, '←', &["left", "turn left"]),
    (Key::ArrowDown, '↓', &["down"]),
    (Key::ArrowRight, '→', &["right", "turn right"]),
    (Key::ArrowUp, '↑', &["up", "go forward"]),
];

/// The action of a pair in [`ARROWS`].
fn of_arrow<'a>(actions: &'a [String], words: &[&str]) -> Option<&'a String> {
    let has = |word: &&str| actions.iter().find(|action| action == word);
    words.iter().find_map(has)
}

/// Whether an arrow says it.
fn has_arrow(actions: &[String], action: &String) -> bool {
    let mut arrows = ARROWS.iter();
    arrows.any(|(_, _, words)| of_arrow(actions, words) == Some(action))
}

/// The one action that these letters stand for: the only one that begins so, or the only one of those without an arrow.
fn meant<'a>(actions: &'a [String], letters: &str) -> Option<&'a String> {
    let begin: Vec<&String> = actions.iter().filter(|a| a.starts_with(letters)).collect();
    let others = begin.iter().copied();
    let others: Vec<&String> = others.filter(|a| !has_arrow(actions, a)).collect();
    match (&begin[..], &others[..]) {
        ([action], _) | (_, [action]) => Some(action),
        _ => None,
    }
}

/// Which keys do what.
pub fn help(actions: &[String]) -> String {
    let mut keys: Vec<String> = Vec::new();
    for (_, sign, words) in &ARROWS {
        if let Some(action) = of_arrow(actions, words) {
            keys.push(format!("{sign} {action}"));
        }
    }
    for action in actions.iter().filter(|action| !has_arrow(actions, action)) {
        let ends = action
            .char_indices()
            .map(|(at, letter)| at + letter.len_utf8());
        let mut letters = ends.map(|end| &action[..end]);
        let letters = letters.find(|letters| meant(actions, letters) == Some(action));
        keys.push(match letters {
            Some(letters) => format!("{letters} {action}"),
            None => format!("{action} and Enter"),
        });
    }
    format!("Keys: {}; ? helps, q quits.", keys.join(", "))
}

/// Lines made of keys: an arrow says its action, `q` and `?` themselves, and letters a word as soon as only one action
/// without an arrow begins so; Enter ends a line that says something else. Words that begin with `q` come before the
/// quitting.
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
                Ok(key @ (Key::ArrowLeft | Key::ArrowRight | Key::ArrowUp | Key::ArrowDown)) => {
                    let arrow = ARROWS.iter().find(|(arrow, ..)| *arrow == key);
                    let action = arrow.and_then(|(_, _, words)| of_arrow(self.actions, words));
                    if let Some(action) = action {
                        return self.say(action, &line);
                    }
                }
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
                    let begin = self.actions.iter().any(|action| action.starts_with(&line));
                    match (meant(self.actions, &line), &*line) {
                        (Some(action), _) => {
                            write!(self.echo, "{}", &action[line.len() - letter.len_utf8()..])?;
                            return self.say(action, action);
                        }
                        (None, "q" | "?") if !begin => {
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

    /// What no arrow says has a letter of its own, though the words of arrows begin with it too.
    #[test]
    fn rooms_have_arrows_and_letters() {
        let scenario = (lapwing_env::find("rooms").unwrap().configure)(&serde_json::json!({}));
        let actions = scenario.unwrap().actions().to_vec();
        let names: Vec<&str> = actions.iter().map(|action| &**action).collect();
        let keys = [
            Key::ArrowUp,
            Key::ArrowDown,
            Key::ArrowLeft,
            Key::Char('t'),
            Key::Char('p'),
            Key::Char('d'),
            Key::ArrowRight,
        ];
        let (said, _) = lines(&names, &keys);
        let wanted = [
            "go forward",
            "turn left",
            "toggle",
            "pick up",
            "drop",
            "turn right",
        ];
        assert_eq!(said, wanted);
        insta::assert_snapshot!(help(&actions), @"Keys: ← turn left, → turn right, ↑ go forward, p pick up, d drop, t toggle; ? helps, q quits.");
        let moves: Vec<String> = MOVES.iter().map(|&word| word.to_owned()).collect();
        insta::assert_snapshot!(help(&moves), @"Keys: ← left, ↓ down, → right, ↑ up; ? helps, q quits.");
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
