//! Email addresses.

use super::text::Step;

pub(super) const ENTITY: &str = "EMAIL_ADDRESS";
/// Maximum length of the part before the `@` (RFC 5321).
const LOCAL: usize = 64;
/// Maximum length of a domain.
const DOMAIN: usize = 189;

/// Latin letters with marks in UTF-8: U+00C0 to U+024F.
fn is_latin(byte: u8) -> bool {
    matches!(byte, 0x80..=0xBF | 0xC3..=0xC9)
}

pub(super) fn is_local(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'%' | b'+' | b'-' | b'\'') || is_latin(byte)
}

/// Returns the beginning of the address around the `@` at `at`, or `at`.
pub(super) fn start(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let local = bytes[..at].iter().rev().take(LOCAL).take_while(|byte| is_local(**byte)).count();
    let mut start = at - local;
    while start < at && (matches!(bytes[start], b'.' | b'-' | b'\'') || !text.is_char_boundary(start)) {
        start += 1;
    }
    start
}

pub(super) fn find(text: &str, start: usize, at: usize) -> Step {
    let bytes = text.as_bytes();
    if start == at || bytes[at - 1] == b'.' {
        return Step::No;
    }
    let domain = bytes[at + 1..]
        .iter()
        .take(DOMAIN)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') || is_latin(**byte))
        .count();
    let open = at + 1 + domain == bytes.len();
    let mut end = at + 1 + domain;
    while matches!(bytes[end - 1], b'.' | b'-') || !text.is_char_boundary(end) {
        end -= 1;
    }
    let host = &bytes[at + 1..end];
    let is_address = host.contains(&b'.')
        && host.split(|byte| *byte == b'.').all(|label| {
            !label.is_empty() && label.len() <= 63 && !label.starts_with(b"-") && !label.ends_with(b"-")
        })
        && host.rsplit(|byte| *byte == b'.').next().is_some_and(is_top_level);
    // Remotes of git, such as git@github.com:owner/name.
    let is_remote = &bytes[start..at] == b"git" && bytes.get(end) == Some(&b':');
    match (is_address && !is_remote, open) {
        (true, true) => Step::Growing(start..end),
        (true, false) => Step::Found(start..end),
        (false, true) => Step::Open,
        (false, false) => Step::No,
    }
}

/// Letters or punycode, but not the extension of a file such as `icon@2x.png`.
fn is_top_level(label: &[u8]) -> bool {
    const FILES: [&[u8]; 10] =
        [b"png", b"jpg", b"jpeg", b"gif", b"svg", b"webp", b"css", b"js", b"json", b"html"];
    label.len() >= 2
        && (label.iter().all(|byte| byte.is_ascii_alphabetic() || is_latin(*byte))
            || label.starts_with(b"xn--"))
        && !FILES.iter().any(|file| file.eq_ignore_ascii_case(label))
}
