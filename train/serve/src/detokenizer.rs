//! Incremental detokenisation: whole characters only, and no text that may still become a stop text.

use std::sync::Arc;

use lapwing_model::ModelError;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplyToken {
    pub(crate) text: String,
    /// `None` for the first token of a prompt.
    pub(crate) log_prob: Option<f32>,
    /// The most likely tokens at its position.
    pub(crate) likeliest: Vec<(String, f32)>,
    /// Number of characters before it.
    pub(crate) offset: usize,
}

/// A part of a reply.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ReplyPiece {
    pub(crate) text: String,
    /// Empty unless log-probabilities are requested.
    pub(crate) tokens: Vec<ReplyToken>,
}

/// Maximum number of tokens held back for an incomplete character: no character has more bytes.
const MAX_HELD_TOKENS: usize = 8;

/// The text of a growing reply.
#[derive(Default)]
pub(crate) struct Detokenizer {
    stops: Arc<[String]>,
    ids: Vec<u32>,
    /// `ids[from..read]` are decoded again with the next tokens, because a character may depend on the one before it.
    from: usize,
    read: usize,
    /// Decoded text that is not handed out yet.
    held: String,
    /// Number of decoded characters.
    pub(crate) characters: usize,
    /// Descriptions of the tokens whose text is held, and of the one that is pushed next.
    pub(crate) tokens: Vec<ReplyToken>,
    /// Whether a stop text was found. The text before it may not be handed out yet.
    pub(crate) is_over: bool,
}

impl Detokenizer {
    /// Returns an empty text that ends at any of these stop texts.
    pub(crate) fn new(stops: Arc<[String]>) -> Detokenizer {
        Detokenizer {
            stops,
            ..Detokenizer::default()
        }
    }

    /// Adds a token. Stop texts in a prompt are ignored.
    pub(crate) fn push(
        &mut self,
        id: u32,
        is_prompt: bool,
        decode: Decode,
    ) -> Result<(), ModelError> {
        self.ids.push(id);
        let is_late = self.ids.len() - self.read > MAX_HELD_TOKENS;
        self.decode(is_late, is_prompt, decode)
    }

    /// Takes all decoded text: of a prompt, or at the end.
    pub(crate) fn take_all(&mut self) -> ReplyPiece {
        ReplyPiece {
            text: std::mem::take(&mut self.held),
            tokens: std::mem::take(&mut self.tokens),
        }
    }

    /// Takes the text that can be handed out, if there is any.
    pub(crate) fn take(&mut self) -> Option<ReplyPiece> {
        let whole = self.held.len() - if self.is_over { 0 } else { self.held_bytes() };
        let text: String = self.held.drain(..whole).collect();
        (!text.is_empty()).then(|| ReplyPiece {
            text,
            tokens: std::mem::take(&mut self.tokens),
        })
    }

    /// Takes the rest after the last token.
    pub(crate) fn finish(&mut self, decode: Decode) -> Result<ReplyPiece, ModelError> {
        if !self.is_over {
            self.decode(true, false, decode)?;
        }
        Ok(self.take_all())
    }

    fn decode(&mut self, all: bool, is_prompt: bool, decode: Decode) -> Result<(), ModelError> {
        let before = decode(&self.ids[self.from..self.read])?;
        let now = decode(&self.ids[self.from..])?;
        // An incomplete character is decoded as this one.
        let is_whole = !now.ends_with('\u{fffd}');
        let Some(new) = now.get(before.len()..).filter(|new| !new.is_empty()) else {
            return Ok(());
        };
        if !is_whole && !all {
            return Ok(());
        }
        (self.from, self.read) = (self.read, self.ids.len());
        self.characters += new.chars().count();
        self.held.push_str(new);
        let stops = self.stops.iter().filter(|_| !is_prompt);
        if let Some(at) = stops.filter_map(|stop| self.held.find(&**stop)).min() {
            self.held.truncate(at);
            self.is_over = true;
        }
        Ok(())
    }

    /// Returns the number of bytes at the end that may be the start of a stop text.
    fn held_bytes(&self) -> usize {
        let mut starts = self.held.char_indices().map(|(at, _)| &self.held[at..]);
        let is_prefix = |end: &&str| self.stops.iter().any(|stop| stop.starts_with(end));
        starts.find(is_prefix).map_or(0, str::len)
    }
}

/// Decodes ids.
pub type Decode<'a> = &'a dyn Fn(&[u32]) -> Result<String, ModelError>;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each token is a byte, as in the worst case of a byte vocabulary.
    fn bytes(ids: &[u32]) -> Result<String, ModelError> {
        let bytes: Vec<u8> = ids.iter().map(|&id| id as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn grown(text: &[u8], stops: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut growing = Detokenizer::new(stops.into());
        let mut pieces = Vec::new();
        for &byte in text {
            growing.push(byte.into(), false, &bytes).unwrap();
            pieces.extend(growing.take().map(|piece| piece.text));
            if growing.is_over {
                break;
            }
        }
        let is_over = growing.is_over;
        let last = growing.finish(&bytes).unwrap().text;
        pieces.extend(Some(last).filter(|last| !last.is_empty()));
        (pieces, is_over)
    }

    #[test]
    fn characters_are_handed_out_whole() {
        assert_eq!(grown("aé雪b".as_bytes(), &[]).0, ["a", "é", "雪", "b"]);
        // The first byte of an incomplete character, and invalid bytes.
        assert_eq!(grown(b"a\xe9", &[]).0, ["a", "\u{fffd}"]);
        let broken = [0xffu8; 40];
        let (pieces, _) = grown(&broken, &[]);
        assert_eq!(pieces.concat(), "\u{fffd}".repeat(40));
        assert!(pieces.len() > 1, "nothing was handed out before the end");
    }

    #[test]
    fn a_possible_stop_text_is_held_back() {
        let grown = |text: &str, stops: &[&str]| grown(text.as_bytes(), stops);
        assert_eq!(
            grown("ab\n\ncd", &["\n\n"]),
            (vec!["a".into(), "b".into()], true)
        );
        // Held back until the next character shows that it is no stop text.
        let (pieces, is_over) = grown("ab\ncd", &["\n\n"]);
        assert_eq!(
            (pieces.as_slice(), is_over),
            (&["a", "b", "\nc", "d"].map(String::from)[..], false)
        );
        // Handed out at the end.
        assert_eq!(grown("ab\n", &["\n\n"]).0.concat(), "ab\n");
        // The earliest of several; one within another.
        assert_eq!(grown("one two", &["two", "e t"]).0.concat(), "on");
        assert_eq!(grown("aab", &["ab"]).0.concat(), "a");
        assert_eq!(grown("é雪", &["雪"]), (vec!["é".into()], true));
    }
}
