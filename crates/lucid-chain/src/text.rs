//! Display of untrusted text in messages.
//!
//! kube-apiserver drops warnings that contain control characters and truncates each to 256 characters if their total
//! is too long; an annotation can have 256 KiB. Untrusted text is therefore escaped and truncated, so that the rest
//! of the message stays visible.

use std::fmt::{self, Write};

/// Maximum number of characters shown of a value or an invalid name.
const SHOWN: usize = 40;

/// Maximum number of characters shown of a third-party message.
const LINE: usize = 160;

/// Maximum length of a container name: a DNS label (RFC 1123).
const NAME: usize = 63;

/// Untrusted text in quotes, escaped and truncated after 40 characters.
pub(crate) struct Excerpt<'a>(pub(crate) &'a str);

/// Untrusted name, shown verbatim if it is valid for a container and as an [`Excerpt`] otherwise.
pub(crate) struct Name<'a>(pub(crate) &'a str);

/// Third-party message without quotes, escaped and truncated after 160 characters.
pub(crate) struct Line<'a>(pub(crate) &'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        write_truncated(f, self.0, SHOWN, &['\''])?;
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
    fn a_name_is_quoted_only_where_no_container_could_have_it() {
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
    fn a_line_is_one() {
        assert_eq!(Line("at `a\nb` \"c\" 'd' \\").to_string(), r#"at `a\nb` "c" 'd' \"#);
        assert_eq!(Line(&"x".repeat(161)).to_string(), format!("{}…", "x".repeat(160)));
    }
}
