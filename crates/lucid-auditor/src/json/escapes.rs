//! Escapes of JSON strings.

use std::borrow::Cow;

use memchr::memchr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) offsets: Offsets,
    /// Length of the escaped text that is decoded. The rest is the beginning of an escape.
    pub(crate) complete: usize,
}

/// Offsets after each escape: in the decoded text, and in the escaped one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Offsets(Vec<(usize, usize)>);

impl Offsets {
    pub(crate) fn escaped(&self, decoded: usize) -> usize {
        let after = self.0.partition_point(|(offset, _)| *offset <= decoded);
        match after.checked_sub(1).and_then(|last| self.0.get(last)) {
            Some((offset, escaped)) => escaped + (decoded - offset),
            None => decoded,
        }
    }
}

/// Decodes the escapes of JSON strings (RFC 8259 section 7). Unpaired surrogates and other invalid escapes become U+FFFD.
pub(crate) fn decode(text: &str) -> Decoded<'_> {
    let mut decoded = String::new();
    let mut offsets = Vec::new();
    let mut at = 0;
    while let Some(found) = memchr(b'\\', &text.as_bytes()[at..]) {
        decoded.push_str(&text[at..at + found]);
        at += found;
        let Some((character, length)) = escape(&text[at..]) else { break };
        decoded.push(character);
        at += length;
        offsets.push((decoded.len(), at));
    }
    if offsets.is_empty() {
        // A backslash that was found begins an incomplete escape.
        let complete = memchr(b'\\', text.as_bytes()).unwrap_or(text.len());
        let offsets = Offsets::default();
        return Decoded { text: Cow::Borrowed(&text[..complete]), offsets, complete };
    }
    let rest = memchr(b'\\', &text.as_bytes()[at..]).unwrap_or(text.len() - at);
    decoded.push_str(&text[at..at + rest]);
    Decoded { text: Cow::Owned(decoded), offsets: Offsets(offsets), complete: at + rest }
}

/// Decodes the escape at the beginning of `text`. Returns the character and the length of the escape, or nothing if it is
/// incomplete.
fn escape(text: &str) -> Option<(char, usize)> {
    let kind = text[1..].chars().next()?;
    let simple = match kind {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => return unicode_escape(text),
        other => other,
    };
    Some((simple, 1 + kind.len_utf8()))
}

fn unicode_escape(text: &str) -> Option<(char, usize)> {
    const LENGTH: usize = 6;
    let unit = |text: &str| {
        let digits = text.get(2..LENGTH)?;
        // The standard library accepts a sign.
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
        u16::from_str_radix(digits, 16).ok()
    };
    let is_possible = |text: &str| text.chars().skip(2).take(4).all(|digit| digit.is_ascii_hexdigit());
    let Some(first) = unit(text) else {
        // With fewer than four digits at the end of the text, the rest may follow.
        return (!is_possible(text)).then_some((char::REPLACEMENT_CHARACTER, 2));
    };
    if !matches!(first, 0xD800..0xDC00) {
        return Some((char::from_u32(first.into()).unwrap_or(char::REPLACEMENT_CHARACTER), LENGTH));
    }
    let rest = &text[LENGTH..];
    if rest.len() < LENGTH && (r"\u".starts_with(rest) || rest.starts_with(r"\u") && is_possible(rest)) {
        return None;
    }
    let second = rest.starts_with(r"\u").then(|| unit(rest)).flatten();
    match second.and_then(|second| char::decode_utf16([first, second]).next()?.ok()) {
        Some(character) => Some((character, 2 * LENGTH)),
        None => Some((char::REPLACEMENT_CHARACTER, LENGTH)),
    }
}

/// Encodes a text for a JSON string, without quotes.
pub(crate) fn encode(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_wherever_a_text_ends() {
        let escaped = r#"\"\\\/\b\f\n\r\t\u0041\u00E9\u20ac\ud83d\ude00\ud800!\ude00\u00é\u+041"#;
        let whole = "\"\\/\u{8}\u{c}\n\r\tA\u{e9}\u{20ac}\u{1f600}\u{fffd}!\u{fffd}\u{fffd}00é\u{fffd}+041";
        assert_eq!(decode(escaped).text, whole);
        for cut in (0..=escaped.len()).filter(|cut| escaped.is_char_boundary(*cut)) {
            let start = decode(&escaped[..cut]);
            let rest = decode(&escaped[start.complete..]);
            assert_eq!(format!("{}{}", start.text, rest.text), whole, "{cut}");
        }
    }

    #[test]
    fn offsets_lead_back_to_the_escaped_text() {
        let escaped = r"a\u0069gnore\n\ud83d\ude00 b";
        let decoded = decode(escaped);
        for (part, original) in
            [("i", r"\u0069"), ("gnore", "gnore"), ("\u{1f600}", r"\ud83d\ude00"), (" b", " b")]
        {
            let at = decoded.text.find(part).unwrap();
            let range = decoded.offsets.escaped(at)..decoded.offsets.escaped(at + part.len());
            assert_eq!(&escaped[range], original);
        }
    }
}
