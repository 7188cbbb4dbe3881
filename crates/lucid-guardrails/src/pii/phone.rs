//! Phone numbers (E.164) in international and common national forms.

use super::text::{Step, ends, is_crowded, separator};

pub(super) const ENTITY: &str = "PHONE_NUMBER";
#[rustfmt::skip]
pub(super) const CONTEXT: &[&str] = &[
    "phone", "telephone", "tel", "call", "cellphone", "mobile", "fax", "sms", "whatsapp", "hotline", "telefon", "mobil", "rufnummer",
    "téléphone", "teléfono", "móvil", "celular", "telefono", "cellulare", "telefoon", "telefone", "電話", "电话", "手机",
];

#[derive(Default)]
struct Groups {
    /// Digits of all groups.
    digits: [u8; 16],
    groups: [Group; 8],
    len: usize,
    /// The text ends within or after the last group.
    open: bool,
}

/// A group of digits, with what precedes it.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Number of digits up to its end.
    digits: usize,
    end: usize,
    /// A separator is a hyphen, dot or parenthesis.
    formatted: bool,
    /// Separators differ, without parentheses.
    mixed: bool,
    has_parentheses: bool,
}

/// Collects groups of digits until `max` digits.
fn groups(text: &[u8], start: usize, max: usize) -> Groups {
    let mut found = Groups::default();
    let mut at = start;
    let mut total = 0;
    let mut kind = None;
    let mut last = Group::default();
    while found.len < found.groups.len() {
        let mut next = at;
        // At most one separator and the parentheses of an area code: `+44 (20) 7123`, `(415)-555`.
        let (mut separators, mut parentheses) = (0, 0);
        let (mut formatted, mut separator_kind) = (false, None);
        loop {
            match text.get(next) {
                Some(b'(' | b')') if parentheses < 2 => {
                    (parentheses, next, formatted) = (parentheses + 1, next + 1, true);
                }
                Some(b'\n') if parentheses == 0 => break,
                _ => match separator(text, next) {
                    Some(kind) if kind != b':' && separators < 2 && (found.len > 0 || parentheses > 0) => {
                        (separators, next) = (separators + 1, next + 1);
                        formatted |= matches!(kind, b'-' | b'.');
                        separator_kind = Some(kind);
                    }
                    _ => break,
                },
            }
        }
        if next == text.len() {
            found.open = true;
            break;
        }
        if separators == 2 && parentheses == 0 || found.len > 0 && next == at {
            break;
        }
        let count =
            text[next..].iter().take(max + 1 - total).take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 || total + count > max {
            break;
        }
        let end = next + count;
        found.digits[total..total + count].copy_from_slice(&text[next..end]);
        total += count;
        last = Group {
            digits: total,
            end,
            formatted: last.formatted || formatted,
            mixed: last.mixed || kind.is_some() && separator_kind != kind && !last.has_parentheses,
            has_parentheses: last.has_parentheses || parentheses > 0,
        };
        found.groups[found.len] = last;
        found.len += 1;
        kind = kind.or(separator_kind);
        at = end;
        if end == text.len() {
            found.open = true;
            break;
        }
        if text[end].is_ascii_alphanumeric() {
            found.len -= 1;
            break;
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Strong,
    /// The number may be something else.
    Weak,
    No,
}

/// Finds the longest of the numbers that end with a group, a strong one first. Returns `true` if it is weak.
fn longest(text: &[u8], start: usize, found: &Groups, fit: impl Fn(&[u8], &[Group]) -> Fit) -> (Step, bool) {
    let mut weak = None;
    for len in (1..=found.len).rev() {
        let Group { digits, end, .. } = found.groups[len - 1];
        let range = start..end;
        match fit(&found.digits[..digits], &found.groups[..len]) {
            Fit::Strong if ends(text, end) => {
                return (if found.open { Step::Growing(range) } else { Step::Found(range) }, false);
            }
            Fit::Weak if ends(text, end) && weak.is_none() => weak = Some(range),
            _ => {}
        }
    }
    match (weak, found.open) {
        (Some(range), true) => (Step::Growing(range), true),
        (Some(range), false) => (Step::Found(range), true),
        (None, true) => (Step::Open, false),
        (None, false) => (Step::No, false),
    }
}

/// Finds a number that begins with the `+` at `start`.
pub(super) fn find_international(text: &[u8], start: usize) -> Step {
    if start + 1 == text.len() {
        return Step::Open;
    }
    let (step, _) = longest(text, start, &groups(text, start + 1, 15), |digits, _| {
        let is_number = match digits {
            [b'1', national @ ..] => is_north_american(national),
            [b'7', ..] => digits.len() == 11,
            // Not assigned by ITU-T.
            [b'2', b'8', ..] | [b'8', b'3' | b'9', ..] | [b'9', b'9', b'9', ..] => false,
            [b'2'..=b'9', ..] => (8..=15).contains(&digits.len()),
            _ => false,
        };
        if is_number { Fit::Strong } else { Fit::No }
    });
    step
}

fn is_north_american(digits: &[u8]) -> bool {
    digits.len() == 10
        && matches!(digits[0], b'2'..=b'9')
        && matches!(digits[3], b'2'..=b'9')
        && &digits[1..3] != b"11"
}

/// Finds a number in a national form that begins with the digits or the parenthesis at `start`. Returns `true` if it is
/// weak.
pub(super) fn find_national(text: &[u8], start: usize) -> (Step, bool) {
    let found = groups(text, start, 12);
    longest(text, start, &found, |digits, groups| {
        let last = groups.last().copied().unwrap_or_default();
        // Bytes of a dump, numbers of a table.
        let crowded = is_crowded(text, start, &Step::Found(start..last.end));
        let mut lengths = [0; 8];
        let mut before = 0;
        for (length, group) in lengths.iter_mut().zip(groups) {
            (*length, before) = (group.digits - before, group.digits);
        }
        let lengths = &lengths[..groups.len()];
        let north_american = is_north_american(digits.strip_prefix(b"1").unwrap_or(digits));
        let strong = match (digits, lengths) {
            (_, [3, 3, 4] | [1, 3, 3, 4]) if north_american => last.formatted && !last.mixed,
            // France
            ([b'0', b'1'..=b'9', ..], [2, 2, 2, 2, 2]) => !crowded,
            // United Kingdom
            ([b'0', b'7', ..], [5, 6] | [5, 3, 3]) | ([b'0', b'2', ..], [3, 4, 4]) => !crowded,
            // Japan
            ([b'0', b'7'..=b'9', b'0', ..], [3, 4, 4]) => last.formatted,
            _ => false,
        };
        let weak = match digits {
            // A fraction.
            [b'0', ..] if text.get(start + 1) == Some(&b'.') => false,
            [b'0', b'1'..=b'9', ..] => (9..=12).contains(&digits.len()) && lengths.len() <= 5 && !crowded,
            // China
            [b'1', b'3'..=b'9', ..] if digits.len() == 11 && lengths.len() == 1 => true,
            _ => north_american && !last.mixed && matches!(lengths, [_] | [3, 3, 4] | [1, 3, 3, 4]),
        };
        match (strong, weak) {
            (true, _) => Fit::Strong,
            (false, true) => Fit::Weak,
            (false, false) => Fit::No,
        }
    })
}

/// Returns `true` if a national number may begin with this group of digits.
pub(super) fn is_first_group(group: &[u8]) -> bool {
    group.starts_with(b"0") || group == b"1" || matches!(group.len(), 3 | 10 | 11)
}
