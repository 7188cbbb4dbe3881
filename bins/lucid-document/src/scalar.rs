//! What a plain scalar means to Kubernetes.
//!
//! kubectl reads YAML with `sigs.k8s.io/yaml`, on top of `go.yaml.in/yaml/v2`: YAML 1.1 without numbers in base 60, and
//! with timestamps as strings. The tests compare with what that package gives.

use std::borrow::Cow;

/// A scalar's value in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    Null,
    Bool(bool),
    /// JSON's spelling of a number: the user's own one where that is valid JSON.
    Number(Cow<'a, str>),
    String(&'a str),
    /// Infinity or no number at all: JSON has no such thing.
    NoJson,
}

/// What a plain scalar without a tag means.
pub(crate) fn plain(text: &str) -> Meaning<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Meaning::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Meaning::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf"
        | "-.Inf" | "-.INF" => return Meaning::NoJson,
        _ => {}
    }
    match number(text) {
        Some(number) => Meaning::Number(number),
        None => Meaning::String(text),
    }
}

fn number(text: &str) -> Option<Cow<'_, str>> {
    let first = text.bytes().next()?;
    if first == b'.' {
        // Here underscores count only between digits, as in Go.
        let parts = text[1..].split('_').collect::<Vec<_>>();
        let between = parts.windows(2).all(|pair| {
            let digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_digit());
            digit(pair[0].bytes().next_back()) && digit(pair[1].bytes().next())
        });
        let bare = text.replace('_', "");
        return (between && float(&bare))
            .then(|| json_float(&bare).map(|it| Cow::Owned(it.into_owned())))
            .flatten();
    }
    if !first.is_ascii_digit() && !matches!(first, b'+' | b'-') {
        return None;
    }
    if is_json_integer(text) && (text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok()) {
        return Some(Cow::Borrowed(text));
    }
    let bare = text.replace('_', "");
    if let Some(integer) = integer(&bare) {
        return Some(Cow::Owned(integer.to_string()));
    }
    if !float(&bare) {
        return None;
    }
    if bare == text { json_float(text) } else { json_float(&bare).map(|it| Cow::Owned(it.into_owned())) }
}

/// An integer in the bases that Go knows by their prefixes.
fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let prefix = digits.get(..2).unwrap_or_default();
    let (radix, digits) = match prefix {
        "0x" | "0X" => (16, &digits[2..]),
        "0o" | "0O" => (8, &digits[2..]),
        "0b" | "0B" => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let size = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -size } else { size };
    // An unsigned number has no sign, not even `+`.
    let signed = text.starts_with(['-', '+']);
    let fits = i64::try_from(value).is_ok() || (!signed && u64::try_from(value).is_ok());
    fits.then_some(value)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn float(text: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let mantissa = match (whole, fraction) {
        ("", fraction) => fraction.is_some_and(|fraction| !fraction.is_empty() && digits(fraction)),
        (whole, fraction) => digits(whole) && fraction.is_none_or(digits),
    };
    mantissa && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}

/// JSON's spelling of a float, which is finite in 64 bits.
fn json_float(text: &str) -> Option<Cow<'_, str>> {
    let value: f64 = text.parse().ok()?;
    if !value.is_finite() {
        return None;
    }
    if is_json_number(text) {
        return Some(Cow::Borrowed(text));
    }
    // JSON wants digits on both sides of the point, no plus and no leading zeros.
    let (sign, size) = match text.strip_prefix('-') {
        Some(size) => ("-", size),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let at = size.find(['e', 'E']).unwrap_or(size.len());
    let (mantissa, exponent) = size.split_at(at);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    Some(Cow::Owned(format!("{sign}{whole}{point}{fraction}{exponent}")))
}

fn is_json_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'))
}

fn is_json_number(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    match mantissa.split_once('.') {
        Some((whole, fraction)) => is_json_integer(whole) && !fraction.is_empty() && float(text),
        None => is_json_integer(mantissa) && float(text),
    }
}

/// Whether the text can stand without quotes and is the same string to every reader of YAML, 1.1 and 1.2.
pub(crate) fn is_plainly_a_string(text: &str) -> bool {
    let body = |it: char| it.is_ascii_alphanumeric() || "_-./:@".contains(it);
    let words = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.chars().all(body)
        && !text.ends_with(':')
        && !words.contains(&text.to_ascii_lowercase().as_str())
}
