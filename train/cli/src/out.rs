//! All output of the program. Text from untrusted files cannot move the cursor, change colours or imitate our lines.

use std::borrow::Cow;
use std::io::{self, IsTerminal, StdoutLock, Write};
use std::sync::OnceLock;

use console::style;

static QUIET: OnceLock<bool> = OnceLock::new();

/// Sets `--quiet`, once, at the start.
pub fn set_quiet(quiet: bool) {
    QUIET.get_or_init(|| quiet);
}

/// Whether only results and errors are printed.
pub fn is_quiet() -> bool {
    *QUIET.get_or_init(|| false)
}

/// Returns the text with control characters other than line ends and tabs escaped, as `\u{1b}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |letter| {
        !matches!(letter, '\n' | '\t') && is_control(letter)
    })
}

/// Returns the text in one line, with all control characters escaped.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_control)
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

/// Whether this is a control character, or one that changes the direction of writing or breaks a line.
fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a name as a shell reads it: as it is, or in quotes.
pub fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%\\".contains(c);
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

/// Prints a line about the state of the work on standard error, unless `--quiet` is given.
pub fn status(text: &str) {
    unless_quiet(&line(text));
}

/// Prints something that the user may not expect.
pub fn note(text: &str) {
    unless_quiet(&labelled("note", text));
}

/// Prints a problem that does not end the command.
pub fn warning(text: &str) {
    unless_quiet(&labelled("warning", text));
}

fn unless_quiet(line: &str) {
    if !is_quiet() {
        // Not eprintln, which panics if standard error is closed.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Returns a line such as `note: TEXT`.
pub fn labelled(label: &str, text: &str) -> String {
    let head = style(format!("{label}:")).for_stderr().bold();
    let head = match label {
        "error" => head.red(),
        "warning" => head.yellow(),
        _ => head.cyan(),
    };
    format!("{head} {}", line(text))
}

/// Prints a line on standard error, even if `--quiet` is given.
pub fn print_always(text: &str) {
    // Not eprintln, which panics if standard error is closed.
    let _ = writeln!(io::stderr(), "{}", line(text));
}

pub fn error(text: &str) {
    let _ = writeln!(io::stderr(), "{}", labelled("error", text));
}

/// Returns standard output for people, which escapes control characters.
pub fn shown() -> Escaping<StdoutLock<'static>> {
    Escaping(io::stdout().lock())
}

/// Returns standard output for programs, which writes all bytes as they are.
pub fn raw() -> StdoutLock<'static> {
    io::stdout().lock()
}

/// Prints a generated text: unchanged to a pipe or file, with control characters escaped on a terminal.
pub fn print(text: &str) -> io::Result<()> {
    match io::stdout().is_terminal() {
        true => writeln!(shown(), "{text}"),
        false => writeln!(raw(), "{text}"),
    }
}

/// A writer that escapes control characters.
#[derive(Debug)]
pub struct Escaping<W>(pub W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // `write!` passes whole texts.
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
    fn control_characters_are_escaped() {
        let hostile = "a\tb\nerror: c\x1b[2J\r\u{7}\u{9b}\u{202e}\u{2028}é雪";
        assert_eq!(
            visible(hostile),
            "a\tb\nerror: c\\u{1b}[2J\\r\\u{7}\\u{9b}\\u{202e}\\u{2028}é雪"
        );
        assert!(line(hostile).starts_with("a\\tb\\nerror: c"));
        let mut out = Vec::new();
        write!(Escaping(&mut out), "{}: {hostile}", 1).unwrap();
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
