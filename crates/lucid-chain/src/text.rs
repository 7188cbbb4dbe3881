//! Showing text that somebody else wrote.

use std::fmt;

/// How many characters of a foreign text a message repeats.
const SHOWN: usize = 64;

/// A foreign text in quotes, with control characters escaped and everything after the first
/// 64 characters cut. kube-apiserver drops a warning that holds a control character, and an
/// annotation may be 256 KiB long.
pub(crate) struct Excerpt<'a>(pub(crate) &'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(SHOWN) {
            match character {
                '\'' => f.write_str("'")?,
                other => write!(f, "{}", other.escape_debug())?,
            }
        }
        f.write_str(if characters.next().is_some() { "…\"" } else { "\"" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_short_and_free_of_control_characters() {
        let cases = [
            ("", r#""""#.to_owned()),
            ("it's", r#""it's""#.to_owned()),
            ("a\n\"b\u{7}\u{202e}", r#""a\n\"b\u{7}\u{202e}""#.to_owned()),
            (&"é".repeat(64), format!("\"{}\"", "é".repeat(64))),
            (&"é".repeat(65), format!("\"{}…\"", "é".repeat(64))),
        ];
        for (text, shown) in cases {
            assert_eq!(Excerpt(text).to_string(), shown);
        }
    }
}
