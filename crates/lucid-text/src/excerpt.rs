use std::borrow::Cow;
use std::fmt::{self, Write};

/// Maximum number of characters of an [`Excerpt`]: warnings with two of them have to stay below 256 characters.
const EXCERPT: usize = 40;

/// Maximum number of characters of a [`Name`] without quotes: the length of a DNS label (RFC 1123).
const NAME: usize = 63;

/// Maximum number of characters of a [`Line`].
const LINE: usize = 200;

/// Untrusted text in quotes, escaped and truncated after 40 characters.
#[derive(Clone, Copy, Debug)]
pub struct Excerpt<'a>(pub &'a str);

/// Untrusted name, shown verbatim if it is valid for a container and as an [`Excerpt`] otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a>(pub &'a str);

/// Message of others, or long name, without quotes. Control characters are escaped; it is truncated after 200
/// characters.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a>(pub &'a str);

/// Truncates `text` to `longest` characters, appending `…`.
#[must_use]
pub fn truncate(text: &str, longest: usize) -> Cow<'_, str> {
    let end = if text.len() <= longest { None } else { text.char_indices().nth(longest) };
    end.map_or_else(|| text.into(), |(end, _)| format!("{}…", &text[..end]).into())
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        write_truncated(f, self.0, EXCERPT, &['\''])?;
        f.write_str("\"")
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        match (1..=NAME).contains(&self.0.len()) && self.0.bytes().all(plain) {
            true => f.write_str(self.0),
            false => Excerpt(self.0).fmt(f),
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_truncated(f, self.0, LINE, &['\'', '"', '\\'])
    }
}

/// Writes `text`, escaping all characters except those in `bare`, and truncates it with `…` after `room` characters.
fn write_truncated(f: &mut fmt::Formatter<'_>, text: &str, mut room: usize, bare: &[char]) -> fmt::Result {
    for character in text.chars() {
        let escaped = character.escape_debug();
        let width = if bare.contains(&character) { 1 } else { escaped.len() };
        if width > room {
            return f.write_str("…");
        }
        room -= width;
        match width {
            1 => f.write_char(character)?,
            _ => write!(f, "{escaped}")?,
        }
    }
    Ok(())
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
            (&"é".repeat(40), format!("\"{}\"", "é".repeat(40))),
            (&"é".repeat(41), format!("\"{}…\"", "é".repeat(40))),
            (&"\n".repeat(41), format!("\"{}…\"", "\\n".repeat(20))),
        ];
        for (text, shown) in cases {
            assert_eq!(Excerpt(text).to_string(), shown);
        }
    }

    #[test]
    fn only_invalid_container_names_are_quoted() {
        let long = "a".repeat(64);
        let cases = [
            ("web-1", "web-1".to_owned()),
            ("", r#""""#.to_owned()),
            ("a b", r#""a b""#.to_owned()),
            ("\u{1b}", r#""\u{1b}""#.to_owned()),
            (&long, format!("\"{}…\"", "a".repeat(40))),
        ];
        for (name, shown) in cases {
            assert_eq!(Name(name).to_string(), shown);
        }
    }

    #[test]
    fn a_line_contains_no_line_breaks() {
        assert_eq!(Line("at `a\nb` \"c\" 'd' \\").to_string(), r#"at `a\nb` "c" 'd' \"#);
        assert_eq!(Line(&"x".repeat(201)).to_string(), format!("{}…", "x".repeat(200)));
    }

    #[test]
    fn long_texts_are_truncated_between_characters() {
        assert_eq!(truncate(&"é".repeat(9), 9), "é".repeat(9));
        assert_eq!(truncate(&"é".repeat(9), 8), format!("{}…", "é".repeat(8)));
    }
}
