//! IP addresses, with their prefix length.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::text::Step;

pub(super) const ENTITY: &str = "IP_ADDRESS";

fn run(text: &[u8], start: usize, limit: usize, accept: impl Fn(u8) -> bool) -> usize {
    start + text[start..].iter().take(limit).take_while(|byte| accept(**byte)).count()
}

pub(super) fn find_v4(text: &[u8], start: usize) -> Step {
    let end = run(text, start, 16, |byte| byte.is_ascii_digit() || byte == b'.');
    let run = &text[start..end];
    let open = end == text.len();
    let (address, dot) = match run {
        [address @ .., b'.'] => (address, 1),
        address => (address, 0),
    };
    let end = end - dot;
    let fits = text.get(end).is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    match parse::<Ipv4Addr>(address) {
        Some(_) if fits && !is_version(&text[..start]) => Step::Found(start..prefix(text, end, 32)),
        None if open && run.len() <= 15 => Step::Open,
        _ => Step::No,
    }
}

/// Returns `true` if a version number follows `before`: `Chrome/120.0.0.0`, `version 1.2.3.4`.
fn is_version(before: &[u8]) -> bool {
    let word = |word: &[u8]| {
        let before = before.trim_ascii_end();
        before.len() >= word.len() && before[before.len() - word.len()..].eq_ignore_ascii_case(word)
    };
    matches!(before, [.., byte, b'/'] if byte.is_ascii_alphanumeric())
        || word(b"version")
        || word(b"release")
        || before.ends_with(b"==")
}

/// Finds an IPv6 address at `start`. Returns the end of the run of hexadecimal digits and colons as well.
pub(super) fn find_v6(text: &[u8], start: usize) -> (Step, usize) {
    let run_end =
        run(text, start, usize::MAX, |byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'));
    let address = &text[start..run_end];
    let colons = address.iter().take(64).filter(|byte| **byte == b':').count();
    if address.len() > 47 || colons == 0 {
        return (Step::No, run_end);
    }
    let digits = address.iter().any(u8::is_ascii_digit);
    let open = run_end == text.len() && (digits || colons > 1);
    let undecided = if open { Step::Open } else { Step::No };
    // Without the end of a sentence.
    let mut end =
        start + address.iter().rposition(|byte| !matches!(byte, b'.' | b':')).map_or(0, |last| last + 1);
    if text[end..].starts_with(b"::") {
        end += 2;
    }
    let fits = text.get(end).is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
    if !fits || !digits || parse::<Ipv6Addr>(&text[start..end]).is_none() {
        return (undecided, run_end);
    }
    if !is_plausible(&text[start..end]) || start > 0 && text[start - 1] == b'_' {
        return (undecided, run_end);
    }
    if text.get(end) == Some(&b'%') {
        let zone = run(text, end + 1, 15, |byte| byte.is_ascii_alphanumeric());
        end = if zone > end + 1 { zone } else { end };
    }
    let range = start..prefix(text, end, 128);
    (if open { Step::Growing(range) } else { Step::Found(range) }, run_end)
}

/// Returns `false` for what is rather a path, such as `f64::E`: short, and without the prefix of an address.
fn is_plausible(address: &[u8]) -> bool {
    let mut groups = address.split(|byte| *byte == b':').filter(|group| !group.is_empty());
    let first = groups.next().unwrap_or_default();
    groups.count() > 1
        || address.starts_with(b":")
        || first.len() == 4
            && (matches!(first[0], b'2' | b'3')
                || first[0].eq_ignore_ascii_case(&b'f')
                    && matches!(first[1].to_ascii_lowercase(), b'c'..=b'f'))
}

/// Returns `true` for loopback, unspecified and broadcast addresses, which do not belong to anyone.
pub(super) fn is_special(address: &[u8]) -> bool {
    address.starts_with(b"127.") || matches!(address, b"0.0.0.0" | b"255.255.255.255" | b"::1")
}

fn parse<T: std::str::FromStr>(address: &[u8]) -> Option<T> {
    std::str::from_utf8(address).ok()?.parse().ok()
}

/// Returns the end of a prefix length at `end`, or `end`.
fn prefix(text: &[u8], end: usize, max: u32) -> usize {
    if text.get(end) != Some(&b'/') {
        return end;
    }
    let digits = run(text, end + 1, 4, |byte| byte.is_ascii_digit());
    let fits = text.get(digits).is_none_or(|byte| !byte.is_ascii_alphanumeric());
    match parse::<u32>(&text[end + 1..digits]) {
        Some(length) if length <= max && fits => digits,
        _ => end,
    }
}
