//! The text of a reply as it grows: whole letters, and nothing that may yet turn out to be a stop text.

use std::sync::Arc;

use lapwing_model::ModelError;

/// A token in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub text: String,
    /// none: nothing stands before it
    pub log_prob: Option<f32>,
    /// the likeliest in its place
    pub likeliest: Vec<(String, f32)>,
    /// letters of the text before it
    pub offset: usize,
}

/// Some of a reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Piece {
    pub text: String,
    /// if they were asked for
    pub tokens: Vec<Token>,
}

/// Ids that are kept back at most because a letter seems to be incomplete: none has more bytes.
const LONGEST_LETTER: usize = 8;

/// A reply under way.
pub struct Growing {
    stops: Arc<[String]>,
    ids: Vec<u32>,
    /// `ids[from..read]` are decoded once more with what follows, since a letter may depend on the one before
    from: usize,
    read: usize,
    /// decoded and not handed out
    held: String,
    /// letters decoded
    letters: usize,
    tokens: Vec<Token>,
    is_over: bool,
}

impl Growing {
    /// Ends at any of these texts.
    pub fn new(stops: Arc<[String]>) -> Growing {
        Growing {
            stops,
            ids: Vec::new(),
            from: 0,
            read: 0,
            held: String::new(),
            letters: 0,
            tokens: Vec::new(),
            is_over: false,
        }
    }

    /// Letters so far: where the next token begins.
    pub fn letters(&self) -> usize {
        self.letters
    }

    /// Tells of the token that is pushed next.
    pub fn tell(&mut self, token: Token) {
        self.tokens.push(token);
    }

    /// Adds a token; a part of a prompt may hold a stop text.
    pub fn push(&mut self, id: u32, is_prompt: bool, decode: Decode) -> Result<(), ModelError> {
        self.ids.push(id);
        let is_late = self.ids.len() - self.read > LONGEST_LETTER;
        self.decode(is_late, is_prompt, decode)
    }

    /// Whether a stop text has come; what was before it is still to be handed out.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// All that is decoded so far: where a prompt ends, no stop text is in doubt.
    pub fn take_prompt(&mut self) -> Piece {
        Piece {
            text: std::mem::take(&mut self.held),
            tokens: std::mem::take(&mut self.tokens),
        }
    }

    /// What can be handed out by now, if anything.
    pub fn take(&mut self) -> Option<Piece> {
        let whole = self.held.len() - if self.is_over { 0 } else { self.doubtful() };
        let text: String = self.held.drain(..whole).collect();
        (!text.is_empty()).then(|| Piece {
            text,
            tokens: std::mem::take(&mut self.tokens),
        })
    }

    /// All that is left: no token comes any more.
    pub fn finish(&mut self, decode: Decode) -> Result<Piece, ModelError> {
        if !self.is_over {
            self.decode(true, false, decode)?;
        }
        Ok(Piece {
            text: std::mem::take(&mut self.held),
            tokens: std::mem::take(&mut self.tokens),
        })
    }

    fn decode(&mut self, all: bool, is_prompt: bool, decode: Decode) -> Result<(), ModelError> {
        let before = decode(&self.ids[self.from..self.read])?;
        let now = decode(&self.ids[self.from..])?;
        // A letter that is cut off is decoded as this one.
        let is_whole = !now.ends_with('\u{fffd}');
        let Some(new) = now.get(before.len()..).filter(|new| !new.is_empty()) else {
            return Ok(());
        };
        if !is_whole && !all {
            return Ok(());
        }
        (self.from, self.read) = (self.read, self.ids.len());
        self.letters += new.chars().count();
        self.held.push_str(new);
        let stops = self.stops.iter().filter(|_| !is_prompt);
        if let Some(at) = stops.filter_map(|stop| self.held.find(&**stop)).min() {
            self.held.truncate(at);
            self.is_over = true;
        }
        Ok(())
    }

    /// Bytes at the end with which a stop text may begin.
    fn doubtful(&self) -> usize {
        let starts = self.held.char_indices().map(|(at, _)| &self.held[at..]);
        let mut doubtful = starts.filter(|end| self.stops.iter().any(|stop| stop.starts_with(end)));
        doubtful.next().map_or(0, str::len)
    }
}

/// Ids to text.
pub type Decode<'a> = &'a dyn Fn(&[u32]) -> Result<String, ModelError>;

#[cfg(test)]
mod tests {
    use super::*;

    /// A token is a byte, as at worst in a vocabulary of bytes.
    fn bytes(ids: &[u32]) -> Result<String, ModelError> {
        let bytes: Vec<u8> = ids.iter().map(|&id| id as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn grown(text: &[u8], stops: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut growing = Growing::new(stops.into());
        let mut pieces = Vec::new();
        for &byte in text {
            growing.push(byte.into(), false, &bytes).unwrap();
            pieces.extend(growing.take().map(|piece| piece.text));
            if growing.is_over() {
                break;
            }
        }
        let is_over = growing.is_over();
        let last = growing.finish(&bytes).unwrap().text;
        pieces.extend(Some(last).filter(|last| !last.is_empty()));
        (pieces, is_over)
    }

    #[test]
    fn letters_are_handed_out_whole() {
        assert_eq!(grown("aé雪b".as_bytes(), &[]).0, ["a", "é", "雪", "b"]);
        // The first byte of a letter that never comes, and bytes that are none.
        assert_eq!(grown(b"a\xe9", &[]).0, ["a", "\u{fffd}"]);
        let broken = [0xffu8; 40];
        let (pieces, _) = grown(&broken, &[]);
        assert_eq!(pieces.concat(), "\u{fffd}".repeat(40));
        assert!(pieces.len() > 1, "nothing was handed out before the end");
    }

    #[test]
    fn what_may_become_a_stop_text_is_held_back() {
        let grown = |text: &str, stops: &[&str]| grown(text.as_bytes(), stops);
        assert_eq!(
            grown("ab\n\ncd", &["\n\n"]),
            (vec!["a".into(), "b".into()], true)
        );
        // Held back, and then handed out with what shows that it was none.
        let (pieces, is_over) = grown("ab\ncd", &["\n\n"]);
        assert_eq!(
            (pieces.as_slice(), is_over),
            (&["a", "b", "\nc", "d"].map(String::from)[..], false)
        );
        // At the end it is none either.
        assert_eq!(grown("ab\n", &["\n\n"]).0.concat(), "ab\n");
        // The earliest of several; one within another.
        assert_eq!(grown("one two", &["two", "e t"]).0.concat(), "on");
        assert_eq!(grown("aab", &["ab"]).0.concat(), "a");
        assert_eq!(grown("é雪", &["雪"]), (vec!["é".into()], true));
    }
}
