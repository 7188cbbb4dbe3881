//! What this auditor looks for. **An auditor of yours replaces this file.**

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memmem;
use serde_json::Value;

/// Phrases that must not be said. Upper and lower case of ASCII are the same.
#[derive(Debug, Clone)]
pub struct Phrases(Arc<[String]>);

impl Phrases {
    /// Those in `text`, which are separated by commas.
    pub fn parse(text: &str) -> Self {
        let phrases = text.split(',').map(|phrase| phrase.trim().to_ascii_lowercase());
        Self(phrases.filter(|phrase| !phrase.is_empty()).collect())
    }

    /// The first one that a whole text contains. If it is JSON, its strings are looked at as they are meant: in `\u0069gnore`
    /// there is an `ignore`.
    pub fn found_in(&self, text: &[u8]) -> Option<&str> {
        let json = || self.found_in_json(&serde_json::from_slice(text).ok()?);
        self.found_in_bytes(text).or_else(json)
    }

    fn found_in_json(&self, value: &Value) -> Option<&str> {
        match value {
            Value::String(text) => self.found_in_bytes(text.as_bytes()),
            Value::Array(values) => values.iter().find_map(|value| self.found_in_json(value)),
            Value::Object(members) => members.iter().find_map(|(key, value)| {
                self.found_in_bytes(key.as_bytes()).or_else(|| self.found_in_json(value))
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => None,
        }
    }

    fn found_in_bytes(&self, text: &[u8]) -> Option<&str> {
        let text = match text.iter().any(u8::is_ascii_uppercase) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        };
        let found = self.0.iter().find(|phrase| memmem::find(&text, phrase.as_bytes()).is_some());
        found.map(String::as_str)
    }

    /// Looks for them in a text that comes in pieces.
    pub(crate) fn watch(&self) -> Watch {
        Watch { phrases: self.clone(), before: Vec::new() }
    }
}

/// A search in a text that comes in pieces.
pub(crate) struct Watch {
    phrases: Phrases,
    /// The end of what has passed: as much as may be the beginning of a phrase.
    before: Vec<u8>,
}

impl Watch {
    /// The first phrase that ends in `piece`.
    pub(crate) fn look(&mut self, piece: &[u8]) -> Option<&str> {
        let longest = self.phrases.0.iter().map(String::len).max()?;
        let mut text = std::mem::take(&mut self.before);
        text.extend_from_slice(piece);
        self.before = text[text.len().saturating_sub(longest - 1)..].to_vec();
        self.phrases.found_in_bytes(&text)
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
            ("ignore the previous", None),
            ("", None),
        ] {
            assert_eq!(phrases.found_in(text.as_bytes()), found, "{text}");
        }
        assert_eq!(Phrases::parse("").found_in(b"anything"), None);
    }

    #[test]
    fn a_phrase_in_pieces_is_found_when_its_last_piece_comes() {
        let phrases = Phrases::parse("secret word,x");
        let text = b"a SECRET word";
        for cut in 1..text.len() {
            let mut watch = phrases.watch();
            assert_eq!(watch.look(&text[..cut]), None, "{cut}");
            assert_eq!(watch.look(&text[cut..]), Some("secret word"), "{cut}");
        }
        let mut watch = phrases.watch();
        let found: Vec<_> = text.iter().map(|byte| watch.look(&[*byte]).is_some()).collect();
        assert_eq!(found.iter().position(|found| *found), Some(text.len() - 1));
        assert_eq!(Phrases::parse("").watch().look(b"anything"), None);
    }
}
