//! Words, separators and shapes.

use std::ops::Range;

/// Outcome of a search at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Found(Range<usize>),
    /// The text has the format, and may continue after its end.
    Growing(Range<usize>),
    No,
    /// The text ends before it is clear.
    Open,
}

/// Returns the separator of groups of digits at `at`. Wide space, a line feed of
/// [`Normalized::codes`](crate::normalize::Normalized::codes), is a space.
pub(super) fn separator(text: &[u8], at: usize) -> Option<u8> {
    match text.get(at)? {
        b'\n' => Some(b' '),
        kind @ (b' ' | b'-' | b'.' | b'/' | b':') => Some(*kind),
        _ => None,
    }
}

/// Returns `true` if a number may end at `at`: neither letter nor digit follows, nor more digits after a tight separator.
pub(super) fn ends(text: &[u8], at: usize) -> bool {
    let digit_at = |at: usize| text.get(at).is_some_and(u8::is_ascii_digit);
    match text.get(at) {
        Some(b'-' | b'.') => !digit_at(at + 1),
        Some(byte) => !byte.is_ascii_alphanumeric(),
        None => true,
    }
}

/// Returns `true` if a number may begin at `at`. The tail of a UUID, a decimal or another number does not.
pub(super) fn begins(text: &[u8], at: usize) -> bool {
    match text.get(..at) {
        Some([.., before, b'-' | b'.']) => !before.is_ascii_digit(),
        Some([.., before]) => !before.is_ascii_alphanumeric(),
        _ => true,
    }
}

/// Returns `true` if a line of the text ends within a finding.
pub(super) fn is_broken(text: &[u8], step: &Step) -> bool {
    matches!(step, Step::Found(range) if text[range.clone()].contains(&b'\n'))
}

/// Returns `true` if digits precede or follow after one separator, as in lists and tables.
pub(super) fn is_crowded(text: &[u8], start: usize, step: &Step) -> bool {
    let is_near = |kind: &u8| *kind != b'\n' || is_broken(text, step);
    let follows = |end| {
        separator(text, end).is_some()
            && is_near(&text[end])
            && text.get(end + 1).is_some_and(u8::is_ascii_digit)
    };
    matches!(&text[..start], [.., before, kind @ (b' ' | b'\n')] if before.is_ascii_digit() && is_near(kind))
        || matches!(step, Step::Found(range) if follows(range.end))
}

/// Matches a shape: `9` is a digit, `A` a letter, `X` either, `~` a separator other than `:` that stays the same, and
/// other characters are separators. `compact` receives digits and capitals.
pub(super) fn match_shape(shape: &str, text: &[u8], start: usize, compact: &mut Vec<u8>) -> Step {
    compact.clear();
    let mut repeated = None;
    let mut at = start;
    for part in shape.bytes() {
        let Some(&byte) = text.get(at) else { return Step::Open };
        let fits = match part {
            b'9' => byte.is_ascii_digit(),
            b'A' => byte.is_ascii_alphabetic(),
            b'X' => byte.is_ascii_alphanumeric(),
            _ => {
                let Some(kind) = separator(text, at) else { return Step::No };
                let fits = match part {
                    b'~' => kind != b':' && *repeated.get_or_insert(kind) == kind,
                    part => part == kind,
                };
                if !fits {
                    return Step::No;
                }
                at += 1;
                continue;
            }
        };
        if !fits {
            return Step::No;
        }
        compact.push(byte.to_ascii_uppercase());
        at += 1;
    }
    // Fingerprints are longer lists of bytes.
    let list = shape.contains(':')
        && (matches!(text[..start], [.., byte, b':'] if byte.is_ascii_alphanumeric())
            || matches!(text[at..], [b':', byte, ..] if byte.is_ascii_alphanumeric()));
    match ends(text, at) && !list {
        true => Step::Found(start..at),
        false => Step::No,
    }
}

/// Number of bytes before a finding that are searched for context words.
pub(super) const CONTEXT: usize = 64;

/// Returns `true` if one of the lower-case `words` precedes `start`. Words of four letters and more are also found at the
/// beginning of longer ones.
pub(super) fn has_context(text: &[u8], start: usize, words: &[&str]) -> bool {
    let before = &text[start.saturating_sub(CONTEXT)..start];
    before.split(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).any(
        |word| {
            words.iter().any(|context| {
                word.len() >= context.len()
                    && (context.len() >= 4 || word.len() == context.len())
                    && word[..context.len()].eq_ignore_ascii_case(context.as_bytes())
            })
        },
    )
}
