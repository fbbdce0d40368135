//! The one way to the terminal: nothing that a stranger's file holds moves the cursor, changes a colour or looks like a
//! line of ours.

use std::borrow::Cow;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::sync::OnceLock;

use console::style;

static QUIET: OnceLock<bool> = OnceLock::new();

/// Whether to leave out all but results and errors; said once, at the start.
pub fn set_quiet(quiet: bool) {
    QUIET.get_or_init(|| quiet);
}

/// Whether only results and errors are wanted.
pub fn is_quiet() -> bool {
    *QUIET.get_or_init(|| false)
}

/// A text for a terminal: line ends and tabs stay, and whatever else would do something there is shown as `\u{1b}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| {
        !matches!(letter, '\n' | '\t') && acts(letter)
    })
}

/// The same in one line: a line end is shown as `\n`.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, acts)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match is_escaped(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown.into()
}

/// Control characters, and those that turn the direction of writing or break a line.
fn acts(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name as a shell reads it back: as it is, or in quotes.
pub fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%\\".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

/// Something worth knowing, on standard error.
pub fn note(text: &str) {
    if !is_quiet() {
        say(text);
    }
}

/// A line on standard error, whatever is wanted: for errors, and for what must be known.
pub fn say(text: &str) {
    // Not eprintln, which panics where nobody reads.
    let _ = writeln!(io::stderr(), "{}", line(text));
}

/// How the program fails.
pub fn error(text: &str) {
    let name = style("error:").for_stderr().red().bold();
    let _ = writeln!(io::stderr(), "{name} {}", line(text));
}

/// Standard output for people: what is written is made [`visible`].
pub fn shown() -> Shown<StdoutLock<'static>> {
    Shown(io::stdout().lock())
}

/// Standard output for programs, and for the bytes that were asked for.
pub fn raw() -> StdoutLock<'static> {
    io::stdout().lock()
}

/// A text that was asked for: as it is for a pipe or a file, made [`visible`] on a terminal.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().is_terminal() {
        true => writeln!(shown(), "{text}"),
        false => writeln!(raw(), "{text}"),
    }
}

/// Makes visible what is written through it.
#[derive(Debug)]
pub struct Shown<W>(pub W);

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // `write!` hands over whole texts.
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(visible(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_shown() {
        let hostile = "a\tb\nerror: c\x1b[2J\r\u{7}\u{9b}\u{202e}\u{2028}é雪";
        assert_eq!(
            visible(hostile),
            "a\tb\nerror: c\\u{1b}[2J\\r\\u{7}\\u{9b}\\u{202e}\\u{2028}é雪"
        );
        assert!(line(hostile).starts_with("a\\tb\\nerror: c"));
        let mut out = Vec::new();
        write!(Shown(&mut out), "{}: {hostile}", 1).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!("1: {}", visible(hostile))
        );
        assert!(matches!(visible("plain\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn names_are_quoted_for_a_shell() {
        assert_eq!(quoted("runs/snake-1"), "runs/snake-1");
        assert_eq!(quoted("my run"), "'my run'");
        assert_eq!(quoted("$(rm -rf x)"), "'$(rm -rf x)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
