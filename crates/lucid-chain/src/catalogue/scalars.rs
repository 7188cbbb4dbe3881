//! Scalars of an `auditors.yaml`.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use lucid_notary::ImageReference;
use lucid_text::Excerpt;
use lucid_text::names::{is_dns_label, is_dns_subdomain};
use serde_json::Value;

use super::RESERVED_ENV;

pub(super) const NAME_EXPECTED: &str =
    "a DNS label: at most 63 lower-case letters, digits and hyphens, a letter or digit at both ends";
pub(super) const OBJECT_EXPECTED: &str = "the name of an object in the pod's namespace: a DNS subdomain";
pub(super) const KEY_EXPECTED: &str = "a key of at most 253 letters, digits, '-', '_' and '.'";
pub(super) const IMAGE_EXPECTED: &str = "an image reference such as registry.example/auditor:1.0";

pub(super) fn text(text: &str) -> Result<Value, String> {
    Ok(text.into())
}

pub(super) fn name(text: &str) -> Result<Value, String> {
    // `null` would be a DNS label.
    if is_null(text) || !is_dns_label(text) {
        return Err(format!("expected {NAME_EXPECTED}; found {}", Found(text)));
    }
    Ok(text.into())
}

/// Checks the name of a ConfigMap or Secret: a DNS subdomain (RFC 1123).
pub(super) fn object_name(text: &str) -> Result<Value, String> {
    if is_null(text) || !is_dns_subdomain(text) {
        return Err(format!("expected {OBJECT_EXPECTED}, found {}", Found(text)));
    }
    Ok(text.into())
}

pub(super) fn image(text: &str) -> Result<Value, String> {
    // `null` would be a valid reference.
    if is_null(text) {
        return Err(format!("expected {IMAGE_EXPECTED}, found nothing"));
    }
    ImageReference::from_str(text).map_err(|error| error.to_string())?;
    Ok(text.into())
}

/// Parses a boolean in any of YAML's three spellings.
pub(super) fn boolean(text: &str) -> Result<Value, String> {
    match text {
        "true" | "True" | "TRUE" => Ok(true.into()),
        "false" | "False" | "FALSE" => Ok(false.into()),
        _ => Err(format!("expected true or false, found {}", Found(text))),
    }
}

pub(super) fn port(text: &str) -> Result<Value, String> {
    let port = crate::port::parse(text).map(|port| port.get().into());
    port.ok_or_else(|| format!("expected 1 to 65535, found {}", Found(text)))
}

/// Parses a whole number in decimal digits, without a sign.
pub(super) fn number(text: &str, expected: RangeInclusive<u32>) -> Result<Value, String> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten().filter(|number| expected.contains(number));
    number.map(Value::from).ok_or_else(|| {
        let (least, most) = expected.into_inner();
        let expected = if least == most { least.to_string() } else { format!("{least} to {most}") };
        format!("expected {expected}, found {}", Found(text))
    })
}

pub(super) fn env_name(text: &str) -> Result<Value, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if RESERVED_ENV.contains(&text) {
        Err(format!(
            "expected any name except {}, which Lucid sets itself; found {text}",
            RESERVED_ENV.join(", ")
        ))
    } else if !text.is_empty() && text.bytes().all(allowed) && !text.as_bytes()[0].is_ascii_digit() {
        Ok(text.into())
    } else {
        Err(format!(
            "expected a name of letters, digits, '-', '_' and '.' that does not start with a digit; found {}",
            Found(text)
        ))
    }
}

/// Returns `true` for the YAML spellings of null.
pub(super) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// A value in a message, without quotes if it is unambiguous.
pub(super) struct Found<'a>(pub(super) &'a str);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if is_null(self.0) {
            f.write_str("nothing")
        } else if self.0.len() <= 20 && self.0.bytes().all(bare) {
            f.write_str(self.0)
        } else {
            write!(f, "{}", Excerpt(self.0))
        }
    }
}
