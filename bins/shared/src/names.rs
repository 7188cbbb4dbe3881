//! Kubernetes object names as arguments.

use lucid_text::names::{is_dns_label, is_dns_subdomain};

/// Parses a DNS label (RFC 1123), the form of namespace names, for clap's `value_parser`.
pub fn parse_namespace(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str = "expected 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends";
    if is_dns_label(text) { Ok(text.to_owned()) } else { Err(EXPECTED) }
}

/// Parses a DNS subdomain (RFC 1123), the form of most object names, for clap's `value_parser`.
pub fn parse_object_name(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str = "expected up to 253 characters: labels of a-z, 0-9 and '-', joined by '.'";
    if is_dns_subdomain(text) { Ok(text.to_owned()) } else { Err(EXPECTED) }
}
