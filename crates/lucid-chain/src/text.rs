//! Showing text that somebody else wrote.
//!
//! kube-apiserver drops a warning that holds a control character and cuts one at 256 characters when all of them are too
//! long, and an annotation may be 256 KiB long. So what is shown is escaped, and cut so that the rest of a message is seen.

use std::fmt::{self, Write};

/// How many characters a message repeats of a text, and of a name.
const SHOWN: usize = 40;

/// How many characters are shown of a message that is not of our making.
const LINE: usize = 160;

/// The longest name that the API server takes for a container: a DNS label (RFC 1123).
const NAME: usize = 63;

/// A foreign text in quotes, with control characters escaped and cut after 40 characters.
pub(crate) struct Excerpt<'a>(pub(crate) &'a str);

/// A foreign name as it is, unless no container could have it.
pub(crate) struct Name<'a>(pub(crate) &'a str);

/// A foreign message without quotes, with control characters escaped and cut after 160 characters.
pub(crate) struct Line<'a>(pub(crate) &'a str);

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        write_start(f, self.0, SHOWN, &['\''])?;
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
        write_start(f, self.0, LINE, &['\'', '"', '\\'])
    }
}

/// As much of `text` as `room` characters hold when all but the `bare` ones are escaped.
fn write_start(f: &mut fmt::Formatter<'_>, text: &str, mut room: usize, bare: &[char]) -> fmt::Result {
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
