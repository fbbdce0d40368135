//! Keys of the terminal.

use std::io::{self, Write};

use console::Key;

/// The arrow keys with the names of their actions. A game has at most one of them.
const ARROWS: [(Key, char, &[&str]); 4] = [
    (Key::ArrowLeft, '←', &["left", "turn left"]),
    (Key::ArrowDown, '↓', &["down"]),
    (Key::ArrowRight, '→', &["right", "turn right"]),
    (Key::ArrowUp, '↑', &["up", "go forward"]),
];

fn arrow_action<'a>(actions: &'a [String], names: &[&str]) -> Option<&'a String> {
    actions.iter().find(|action| names.contains(&&***action))
}

fn has_arrow(action: &String) -> bool {
    let mut arrows = ARROWS.iter();
    arrows.any(|(_, _, names)| names.contains(&&**action))
}

/// Returns the only action with this prefix, or else the only one of those without an arrow.
fn with_prefix<'a>(actions: &'a [String], prefix: &str) -> Option<&'a String> {
    let mut all: Vec<&String> = actions.iter().filter(|a| a.starts_with(prefix)).collect();
    if all.len() > 1 {
        all.retain(|action| !has_arrow(action));
    }
    match all[..] {
        [action] => Some(action),
        _ => None,
    }
}

/// Returns a line that lists the keys of these actions.
pub fn help(actions: &[String]) -> String {
    let arrows = ARROWS.iter().filter_map(|(_, sign, names)| {
        let action = arrow_action(actions, names)?;
        Some(format!("{sign} {action}"))
    });
    let mut keys: Vec<String> = arrows.collect();
    for action in actions.iter().filter(|action| !has_arrow(action)) {
        let ends = action.char_indices().map(|(at, c)| at + c.len_utf8());
        let mut prefixes = ends.map(|end| &action[..end]);
        let prefix = prefixes.find(|prefix| with_prefix(actions, prefix) == Some(action));
        keys.push(match prefix {
            Some(prefix) => format!("{prefix} {action}"),
            None => format!("{action} and Enter"),
        });
    }
    format!("Keys: {}; ? helps, q quits.", keys.join(", "))
}

/// Turns keys into lines of input: an arrow into its action, and letters into an action as soon as they select one. Enter
/// ends any other line. `q` and `?` are lines of their own, unless an action begins with them.
pub struct ActionKeys<'a, K, W> {
    read_key: K,
    echo: W,
    actions: &'a [String],
}

impl<'a, K: FnMut() -> io::Result<Key>, W: Write> ActionKeys<'a, K, W> {
    /// Returns a reader of keys for these actions, which writes typed letters to `echo`.
    pub fn new(read_key: K, echo: W, actions: &'a [String]) -> ActionKeys<'a, K, W> {
        ActionKeys {
            read_key,
            echo,
            actions,
        }
    }

    /// Returns the next line; an empty one at the end of the input.
    pub fn next_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        loop {
            match (self.read_key)() {
                Ok(Key::Enter) => return self.finish(&line, &line),
                Ok(Key::Escape | Key::CtrlC | Key::Char('\u{4}')) => {
                    return self.finish("quit", &line);
                }
                Ok(Key::Backspace) => {
                    if line.pop().is_some() {
                        write!(self.echo, "\u{8} \u{8}")?;
                    }
                }
                Ok(Key::Char(letter)) if !letter.is_control() => {
                    line.extend(letter.to_lowercase());
                    write!(self.echo, "{}", letter.to_lowercase())?;
                    if let Some(action) = with_prefix(self.actions, &line) {
                        return self.finish(action, &line);
                    }
                    let is_prefix = self.actions.iter().any(|a| a.starts_with(&line));
                    if !is_prefix && ["q", "?"].contains(&&*line) {
                        return self.finish(&line, &line);
                    }
                }
                Ok(key) => {
                    let arrow = ARROWS.iter().find(|(arrow, ..)| *arrow == key);
                    let action = arrow.and_then(|(.., names)| arrow_action(self.actions, names));
                    if let Some(action) = action {
                        return self.finish(action, &line);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(String::new()),
                Err(e) => return Err(e),
            }
            self.echo.flush()?;
        }
    }

    /// Returns the line, and echoes the part of it that `shown` lacks.
    fn finish(&mut self, line: &str, shown: &str) -> io::Result<String> {
        writeln!(self.echo, "{}", line.strip_prefix(shown).unwrap_or(line))?;
        Ok(format!("{line}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines made of these keys, and the echo.
    fn lines(actions: &[&str], keys: &[Key]) -> (Vec<String>, String) {
        let actions: Vec<String> = actions.iter().map(|&a| a.to_owned()).collect();
        let mut keys = keys.iter().cloned();
        let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let mut echo = Vec::new();
        let mut keys = ActionKeys::new(|| keys.next().ok_or_else(end), &mut echo, &actions);
        let next = || Some(keys.next_line().unwrap()).filter(|line| !line.is_empty());
        let lines = std::iter::from_fn(next).map(|line| line.trim_end().to_owned());
        (lines.collect(), String::from_utf8(echo).unwrap())
    }

    const MOVES: [&str; 4] = ["left", "down", "right", "up"];

    #[test]
    fn keys_become_lines() {
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

    /// An action without an arrow has a letter of its own, even if the action of an arrow begins with it, too.
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
