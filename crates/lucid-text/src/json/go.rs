use std::io;

use serde::Serialize;
use serde_json::{Serializer, ser::Formatter};

/// Serializes strings, lists and string-keyed maps, which cannot fail, with the [escapes of Go](GoEscapes).
pub fn to_string(value: &(impl Serialize + ?Sized)) -> String {
    let mut text = Vec::with_capacity(128);
    let written = value.serialize(&mut Serializer::with_formatter(&mut text, GoEscapes));
    written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default()
}

/// Writes `<`, `>`, `&` and the separators U+2028 and U+2029 as `\\u` escapes, as Go's `encoding/json` does. The API server
/// compares the value of a patch's `test` operation byte by byte with its own serialization.
#[derive(Clone, Debug)]
pub struct GoEscapes;

impl Formatter for GoEscapes {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        // The first bytes of the escaped characters.
        while let Some(place) = rest.bytes().position(|byte| matches!(byte, b'<' | b'>' | b'&' | 0xe2)) {
            let (plain, special) = rest.split_at(place);
            let character = special.chars().next().unwrap_or_default();
            let (special, after) = special.split_at(character.len_utf8());
            writer.write_all(plain.as_bytes())?;
            match character {
                '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    write!(writer, "\\u{:04x}", u32::from(character))?;
                }
                _ => writer.write_all(special.as_bytes())?,
            }
            rest = after;
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_equal_those_of_go() {
        let text = "<a>&€\u{2028}\u{2027}\u{2029}\"\\\u{1}\n";
        let expected = r#""\u003ca\u003e\u0026€\u2028‧\u2029\"\\\u0001\n""#;
        assert_eq!(to_string(text), expected);
        assert_eq!(serde_json::from_str::<String>(expected).ok().as_deref(), Some(text));
    }
}
