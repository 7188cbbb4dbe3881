//! Meaning of plain scalars in Kubernetes manifests.
//!
//! kubectl reads YAML with `sigs.k8s.io/yaml`, on top of `go.yaml.in/yaml/v2`: YAML 1.1 without numbers in base 60, and
//! with timestamps as strings. The tests compare with the output of that package.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meaning {
    Value(Value),
    /// The text itself.
    String,
    /// Infinity or not a number, which JSON does not have.
    NotFinite,
}

pub(super) fn plain(text: &str) -> Meaning {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Meaning::Value(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Meaning::Value(Value::Bool(true))
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Meaning::Value(Value::Bool(false))
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf"
        | "-.Inf" | "-.INF" => Meaning::NotFinite,
        _ => parse_number(text).map_or(Meaning::String, Meaning::Value),
    }
}

/// Returns the key of a JSON object for a key of a map: `1.50` is `1.5`, `yes` is `true`.
pub(super) fn name(key: Value) -> Option<String> {
    match key {
        Value::String(text) => Some(text),
        Value::Number(_) | Value::Bool(_) => Some(key.to_string()),
        _ => None,
    }
}

/// Returns a number as Go writes it: `1e3` and `1000.0` are `1000`.
pub(super) fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value.fract() == 0.0 && value.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "the value is a whole number below 2^53")]
        true => Value::from(value as i64),
        false => Value::from(value),
    }
}

fn parse_number(text: &str) -> Option<Value> {
    let first = text.bytes().next()?;
    let bare = text.replace('_', "");
    if first == b'.' {
        // Here underscores count only between digits, as in Go.
        let parts = text[1..].split('_').collect::<Vec<_>>();
        let between = parts.windows(2).all(|pair| {
            let digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_digit());
            digit(pair[0].bytes().next_back()) && digit(pair[1].bytes().next())
        });
        return between.then(|| parse_float(&bare)).flatten();
    }
    if !first.is_ascii_digit() && !matches!(first, b'+' | b'-') {
        return None;
    }
    parse_integer(&bare).or_else(|| parse_float(&bare))
}

/// An integer in the bases that Go knows by their prefixes.
fn parse_integer(text: &str) -> Option<Value> {
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
    let unsigned = || u64::try_from(value).ok().filter(|_| !signed).map(Value::from);
    i64::try_from(value).ok().map(Value::from).or_else(unsigned)
}

/// Parses `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn parse_float(text: &str) -> Option<Value> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && is_float(text))?;
    Some(number(value))
}

fn is_float(text: &str) -> bool {
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
