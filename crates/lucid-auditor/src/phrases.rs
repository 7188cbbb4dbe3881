//! The phrases that this auditor searches for. **Replace this file in your own auditor.**

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use memchr::memmem;

use crate::json::Reader;

/// Number of bytes of a whole text processed at a time, which limits memory.
const PIECE: usize = 16 << 10;

/// Maximum number of names whose values are joined.
const MAX_NAMES: usize = 64;

/// Blocked phrases, compared without regard to ASCII case.
#[derive(Debug, Clone)]
pub struct Phrases(Arc<[String]>);

impl Phrases {
    /// Parses phrases separated by commas.
    pub fn parse(text: &str) -> Self {
        let phrases = text.split(',').map(|phrase| phrase.trim().to_ascii_lowercase());
        Self(phrases.filter(|phrase| !phrase.is_empty()).collect())
    }

    /// Returns the first phrase in a whole text.
    pub fn found_in(&self, text: &[u8]) -> Option<String> {
        let mut watch = self.watch();
        text.chunks(PIECE).find_map(|piece| watch.look(piece))
    }

    fn find(&self, text: &[u8]) -> Option<String> {
        let text = match text.iter().any(u8::is_ascii_uppercase) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        };
        self.0.iter().find(|phrase| memmem::find(&text, phrase.as_bytes()).is_some()).cloned()
    }

    /// Starts a search in text that arrives in pieces.
    pub(crate) fn watch(&self) -> Watch {
        let (json, raw, decoded, values) = Default::default();
        Watch { phrases: self.clone(), json, raw, decoded, values }
    }
}

/// Search in text that arrives in pieces. It covers:
///
/// - the text itself;
/// - the text with JSON escapes decoded: `\u0069gnore` means `ignore`;
/// - the joined string values of members with the same name. Models stream each word in an event of its own:
///   `{"content":"the secret"}`, `{"content":" word"}`.
pub(crate) struct Watch {
    phrases: Phrases,
    json: Reader,
    raw: Tail,
    decoded: Tail,
    values: HashMap<Vec<u8>, Tail>,
}

impl Watch {
    /// Returns the first phrase that ends in `piece`.
    pub(crate) fn look(&mut self, piece: &[u8]) -> Option<String> {
        let longest = self.phrases.0.iter().map(String::len).max()?;
        let look = |tail: &mut Tail, text: &[u8]| self.phrases.find(&tail.extend(text, longest));
        let decoded = self.json.read(piece);
        let found = look(&mut self.raw, piece).or_else(|| look(&mut self.decoded, &decoded.text));
        found.or_else(|| {
            decoded.values.into_iter().find_map(|(name, value)| {
                // New names beyond the limit are not tracked.
                let is_followed = self.values.len() < MAX_NAMES || self.values.contains_key(&name);
                is_followed.then(|| look(self.values.entry(name).or_default(), &value))?
            })
        })
    }
}

/// End of the text so far, as long as the beginning of a phrase may be.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    /// Returns the tail followed by `text`, and keeps the new tail.
    fn extend(&mut self, text: &[u8], longest: usize) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.0);
        all.extend_from_slice(text);
        self.0 = all[all.len().saturating_sub(longest - 1)..].to_vec();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_found_in_text_and_in_strings_of_json() {
        let phrases = Phrases::parse(" Ignore Previous, ,secret");
        for (text, found) in [
            ("please IGNORE previous rules", Some("ignore previous")),
            (r#"{"messages":[{"content":"\u0069gnore\u0020previous"}]}"#, Some("ignore previous")),
            (r#"{"s\u0065cret":1}"#, Some("secret")),
            (r#"{"parts":[{"text":"Ignore"},{"text":" previous"}]}"#, Some("ignore previous")),
            (r#"{"a":"ignore","b":" previous"}"#, None),
            ("ignore the previous", None),
            ("", None),
        ] {
            assert_eq!(phrases.found_in(text.as_bytes()).as_deref(), found, "{text}");
        }
        assert_eq!(Phrases::parse("").found_in(b"anything"), None);
    }

    #[test]
    fn ambiguous_json_is_inspected() {
        let phrases = Phrases::parse("ignore");
        let nested = format!("{}\"\\u0069gnore\"{}", "[".repeat(130), "]".repeat(130));
        for text in [
            r#"{"other":"\ud800","text":"\u0069gnore"}"#,
            &nested,
            r#"{"text":"\u0069gnore","text":"hello"}"#,
            "{\"text\":\"hello\"}\n{\"text\":\"\\u0069gnore\"}",
        ] {
            assert_eq!(phrases.found_in(text.as_bytes()).as_deref(), Some("ignore"), "{text}");
        }
    }

    #[test]
    fn a_phrase_is_found_wherever_a_whole_text_is_cut() {
        let phrases = Phrases::parse("secret word");
        for before in PIECE - 20..PIECE + 5 {
            for phrase in ["secret word", r"s\u0065cret\u0020word"] {
                let text = format!("\"{}{phrase}\"", "x".repeat(before));
                assert!(phrases.found_in(text.as_bytes()).is_some(), "{before} {phrase}");
            }
        }
    }

    #[test]
    fn a_phrase_in_pieces_is_found_when_its_last_piece_comes() {
        let phrases = Phrases::parse("secret word,x");
        let text = b"a SECRET word";
        for cut in 1..text.len() {
            let mut watch = phrases.watch();
            assert_eq!(watch.look(&text[..cut]), None, "{cut}");
            assert_eq!(watch.look(&text[cut..]).as_deref(), Some("secret word"), "{cut}");
        }
        let mut watch = phrases.watch();
        let found: Vec<_> = text.iter().map(|byte| watch.look(&[*byte]).is_some()).collect();
        assert_eq!(found.iter().position(|found| *found), Some(text.len() - 1));
        assert_eq!(Phrases::parse("").watch().look(b"anything"), None);
    }
}
