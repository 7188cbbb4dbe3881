//! Extracts the strings of JSON from a stream.
//!
//! This is not a parser: it does not check syntax, depth, duplicate members or trailing documents. A parser behind this
//! auditor may accept text that a parser here would reject.

use memchr::memchr3;

/// Maximum number of bytes of a name that are compared.
const LONGEST_NAME: usize = 64;

/// Reader of text that arrives in pieces.
#[derive(Default)]
pub(crate) struct Reader {
    /// Incomplete escape, with its backslash.
    escape: Vec<u8>,
    /// First half of a surrogate pair.
    half: Option<u16>,
    in_string: bool,
    /// Last byte outside of strings other than white space. A string after a colon is the value of a member.
    before: u8,
    /// Last string that is not such a value. If a colon follows, it is the name of a member.
    name: Vec<u8>,
}

/// Decoded content of a piece.
#[derive(Default)]
pub(crate) struct Decoded {
    /// Whole piece with escapes decoded.
    pub(crate) text: Vec<u8>,
    /// Name and value of each member whose value is a string. Of a value that continues, the part in this piece.
    pub(crate) values: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Reader {
    /// Reads the next piece.
    pub(crate) fn read(&mut self, piece: &[u8]) -> Decoded {
        let mut decoded = Decoded::default();
        if self.in_string && self.is_value() {
            self.begin(&mut decoded);
        }
        let mut rest = piece;
        loop {
            if self.escape.is_empty() {
                let special = memchr3(b'"', b'\\', b'\n', rest).unwrap_or(rest.len());
                let (plain, from_special) = rest.split_at(special);
                self.push(plain, &mut decoded);
                rest = from_special;
            }
            let Some((&byte, after)) = rest.split_first() else { break };
            rest = after;
            if byte == b'\n' {
                // Strings end at the end of a line, so that text other than JSON does not affect the following lines.
                (self.in_string, self.before) = (false, byte);
                self.escape.clear();
                decoded.text.push(byte);
            } else if byte == b'\\' || !self.escape.is_empty() {
                if let Some(char) = self.unescape(byte) {
                    self.push(char.encode_utf8(&mut [0; 4]).as_bytes(), &mut decoded);
                }
            } else {
                self.in_string = !self.in_string;
                match self.in_string {
                    true => self.begin(&mut decoded),
                    false => self.before = byte,
                }
                decoded.text.push(byte);
            }
        }
        decoded
    }

    /// Returns `true` if the current string is the value of a member.
    fn is_value(&self) -> bool {
        self.before == b':'
    }

    fn begin(&mut self, decoded: &mut Decoded) {
        match self.is_value() {
            true => decoded.values.push((self.name.clone(), Vec::new())),
            false => self.name.clear(),
        }
    }

    fn push(&mut self, text: &[u8], decoded: &mut Decoded) {
        if text.is_empty() {
            return;
        }
        self.half = None;
        decoded.text.extend_from_slice(text);
        if !self.in_string {
            let last = text.iter().rfind(|byte| !byte.is_ascii_whitespace());
            self.before = last.copied().unwrap_or(self.before);
        } else if !self.is_value() {
            let room = LONGEST_NAME.saturating_sub(self.name.len());
            self.name.extend(text.iter().take(room));
        } else if let Some((_, value)) = decoded.values.last_mut() {
            value.extend_from_slice(text);
        }
    }

    /// Adds a byte to the escape. Returns the character once the escape is complete.
    fn unescape(&mut self, byte: u8) -> Option<char> {
        self.escape.push(byte);
        let unit = unit(&self.escape)?;
        self.escape.clear();
        if matches!(unit, 0xD800..0xDC00) {
            self.half = Some(unit);
            return None;
        }
        // Unpaired surrogates are omitted.
        char::decode_utf16(self.half.take().into_iter().chain([unit])).flatten().last()
    }
}

/// Decodes an escape to a UTF-16 code unit. Returns `None` if it is incomplete.
fn unit(escape: &[u8]) -> Option<u16> {
    match escape {
        [_, b'u', hex @ ..] if hex.len() < 4 => None,
        [_, b'u', hex @ ..] => {
            let unit = str::from_utf8(hex).ok().and_then(|hex| u16::from_str_radix(hex, 16).ok());
            unit.or(Some(0xFFFD))
        }
        [_, b'b'] => Some(0x08),
        [_, b'f'] => Some(0x0C),
        [_, b'n'] => Some(0x0A),
        [_, b'r'] => Some(0x0D),
        [_, b't'] => Some(0x09),
        [_, other, ..] => Some(u16::from(*other)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> (String, Vec<(String, String)>) {
        let string = |bytes| String::from_utf8(bytes).unwrap();
        let mut reader = Reader::default();
        let (mut text, mut values) = (Vec::new(), Vec::new());
        for piece in pieces {
            let decoded = reader.read(piece);
            text.extend(decoded.text);
            values.extend(decoded.values.into_iter().map(|(name, value)| (string(name), string(value))));
        }
        (string(text), values)
    }

    #[test]
    fn escapes_are_undone_wherever_a_text_is_cut() {
        let escaped = br#"{"\\\"\/\b\f\n\r\t\u0041\u00E9\u20ac\ud83d\ude00\ud800!\ude00": "a\u0062"}"#;
        let decoded = "{\"\\\"/\u{8}\u{c}\n\r\tA\u{e9}\u{20ac}\u{1f600}!\": \"ab\"}";
        for cut in 0..escaped.len() {
            assert_eq!(read(&[&escaped[..cut], &escaped[cut..]]).0, decoded, "{cut}");
        }
    }

    #[test]
    fn values_come_with_the_names_of_their_members() {
        for (pieces, values) in [
            (
                &[r#"{"a": "x", "b" : {"c":"\"y:"}, "d": ["z"], "e": 1}"#][..],
                &[("a", "x"), ("c", "\"y:")][..],
            ),
            (&["data: {\"a\":\"x\"}\n\n", "data: {\"a\":\"y\"}\n\n"], &[("a", "x"), ("a", "y")]),
            (&["it\"s no JSON\n{\"a\":\"x\"}"], &[("a", "x")]),
            (&["{\"na", "me\":\"o", "ne\"}"], &[("name", "o"), ("name", "ne")]),
        ] {
            let pieces: Vec<_> = pieces.iter().map(|piece| piece.as_bytes()).collect();
            let read = read(&pieces).1;
            let read: Vec<_> = read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(read, values);
        }
    }
}
