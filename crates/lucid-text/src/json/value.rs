//! Finds the end of a JSON value without decoding it.

use wide::u8x16;

/// Returns the end of the value at `start`, which white space may precede; `None` if it is not valid JSON (RFC 8259).
/// Values may be nested to any depth: each level takes a byte of memory.
pub(super) fn end_of_value(json: &[u8], start: usize) -> Option<usize> {
    let mut open = Vec::new();
    let mut at = start;
    loop {
        let first = next(json, &mut at)?;
        at = match first {
            b'"' => end_of_string(json, at)?,
            b'{' | b'[' => {
                let close = first + 2;
                if peek(json, &mut at)? != close {
                    open.push(close);
                    at = if close == b'}' { end_of_key(json, at)? } else { at };
                    continue;
                }
                at + 1
            }
            b't' => end_of_literal(json, at, b"rue")?,
            b'f' => end_of_literal(json, at, b"alse")?,
            b'n' => end_of_literal(json, at, b"ull")?,
            b'-' | b'0'..=b'9' => end_of_number(json, at - 1)?,
            _ => return None,
        };
        loop {
            let Some(close) = open.last() else { return Some(at) };
            let next = next(json, &mut at)?;
            if next == b',' {
                at = if *close == b'}' { end_of_key(json, at)? } else { at };
                break;
            }
            if next != *close {
                return None;
            }
            open.pop();
        }
    }
}

/// Skips white space and returns the next byte. Inlined, as the functions below: a call costs as much as most tokens.
#[inline(always)]
pub(super) fn peek(json: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        match json.get(*at) {
            Some(b' ' | b'\n' | b'\t' | b'\r') => *at += 1,
            byte => return byte.copied(),
        }
    }
}

#[inline(always)]
fn next(json: &[u8], at: &mut usize) -> Option<u8> {
    let byte = peek(json, at);
    *at += 1;
    byte
}

#[inline(always)]
fn end_of_key(json: &[u8], mut at: usize) -> Option<usize> {
    at = (next(json, &mut at)? == b'"').then(|| end_of_string(json, at))??;
    (next(json, &mut at)? == b':').then_some(at)
}

fn end_of_literal(json: &[u8], at: usize, rest: &[u8]) -> Option<usize> {
    json.get(at..)?.starts_with(rest).then_some(at + rest.len())
}

/// Returns the end of the string whose content is at `at`.
#[inline(always)]
fn end_of_string(json: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = special(json, at);
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at = end_of_escape(json, at)?,
            _ => return None,
        }
    }
}

fn end_of_escape(json: &[u8], at: usize) -> Option<usize> {
    match json.get(at..)? {
        escape if begins_with_short_escape(escape) => Some(at + 2),
        [b'\\', b'u', digits @ ..] if digits.get(..4)?.iter().all(u8::is_ascii_hexdigit) => Some(at + 6),
        _ => None,
    }
}

/// Returns `true` for an escape of one character, which is valid on its own: `\u` may be half of a surrogate pair.
#[inline(always)]
pub(super) fn begins_with_short_escape(json: &[u8]) -> bool {
    matches!(json, [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..])
}

fn end_of_number(json: &[u8], at: usize) -> Option<usize> {
    let digits = |at: usize| {
        let count = json.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (count > 0).then_some(at + count)
    };
    let is_at = |at: usize, bytes: &[u8]| json.get(at).is_some_and(|byte| bytes.contains(byte));
    let first = at + usize::from(is_at(at, b"-"));
    let mut at = digits(first)?;
    // No leading zeros.
    if is_at(first, b"0") && at > first + 1 {
        return None;
    }
    if is_at(at, b".") {
        at = digits(at + 1)?;
    }
    if is_at(at, b"eE") {
        at = digits(at + 1 + usize::from(is_at(at + 1, b"+-")))?;
    }
    Some(at)
}

/// Returns the position of the first quote, backslash or control character from `start` on.
#[inline(always)]
pub(super) fn special(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(block) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let block = u8x16::new(*block);
        let found = block.simd_eq(u8x16::splat(b'"'))
            | block.simd_eq(u8x16::splat(b'\\'))
            | block.simd_eq(block.min(u8x16::splat(0x1f)));
        let found = found.to_bitmask();
        if found != 0 {
            return at + found.trailing_zeros() as usize;
        }
        at += 16;
    }
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().position(is_special).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    /// Pieces of JSON in any order: some are valid values, most are nearly valid.
    fn json() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "\n",
            "\"",
            "\"a\"",
            "\"long enough for two blocks of sixteen bytes\"",
            "\\",
            "\\n",
            "\\u00e9",
            "\\ud800",
            "\\x",
            "\u{1}",
            "é",
            "0",
            "1",
            "-",
            ".5",
            "e+1",
            "E",
            "01",
            "true",
            "false",
            "null",
            "nul",
            "{}",
            "[]",
            "\"a\":1",
            "{\"a\":{\"b\":[1,-2.5e-3,\"c\\\"\"]}}",
            "[[\"\"],{}]",
        ]);
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn values_equal_those_of_serde_json(json in json()) {
            // Ends of values that are followed by something else are compared as well.
            let mut values = serde_json::Deserializer::from_str(&json).into_iter::<&RawValue>();
            let expected = values.next().and_then(Result::ok).map(|_| values.byte_offset());
            let found = end_of_value(json.as_bytes(), 0);
            // serde_json refuses a scalar that another one follows without a separator.
            prop_assert!(found == expected || expected.is_none() && found.is_some_and(|end| {
                let value: Result<&RawValue, _> = serde_json::from_str(&json[..end]);
                value.is_ok() && !json[..end].ends_with(['}', ']', '"'])
            }), "{found:?}, expected {expected:?}");
        }
    }

    #[test]
    fn depth_is_not_limited() {
        let json = "[".repeat(1 << 20) + &"]".repeat(1 << 20);
        assert_eq!(end_of_value(json.as_bytes(), 0), Some(json.len()));
        assert_eq!(end_of_value(&json.as_bytes()[..json.len() - 1], 0), None);
    }
}
