//! Validation of Kubernetes object names.

/// Parses a DNS label (RFC 1123), the form of namespace names, for clap's `value_parser`.
///
/// # Errors
///
/// Returns the accepted form if `text` is not a DNS label.
pub fn parse_namespace(text: &str) -> Result<String, &'static str> {
    const ACCEPTED: &str = "accepted are 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends";
    if is_dns_label(text) { Ok(text.to_owned()) } else { Err(ACCEPTED) }
}

/// Parses a DNS subdomain (RFC 1123), the form of most object names, for clap's `value_parser`.
///
/// # Errors
///
/// Returns the accepted form if `text` is not a DNS subdomain.
pub fn parse_object_name(text: &str) -> Result<String, &'static str> {
    const ACCEPTED: &str = "accepted are up to 253 characters: labels of a-z, 0-9 and '-', joined by '.'";
    let is_name = text.len() <= 253 && text.split('.').all(is_dns_text);
    if is_name { Ok(text.to_owned()) } else { Err(ACCEPTED) }
}

/// Returns `true` if `text` is a valid label key (`IsQualifiedName` of apimachinery): a name of up to 63 characters,
/// optionally prefixed with a DNS subdomain and a slash.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_end = |byte: u8| byte.is_ascii_alphanumeric();
    let ends = name.bytes().next().zip(name.bytes().next_back());
    name.len() <= 63
        && ends.is_some_and(|(first, last)| is_end(first) && is_end(last))
        && name.bytes().all(|byte| is_end(byte) || matches!(byte, b'-' | b'_' | b'.'))
        && prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(is_dns_text))
}

fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_text(text)
}

fn is_dns_text(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = text.bytes().next().zip(text.bytes().next_back());
    ends.is_some_and(|(first, last)| is_alphanumeric(first) && is_alphanumeric(last))
        && text.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_key_is_one_that_an_object_can_have() {
        let (name, prefix) = ("a".repeat(63), "b".repeat(253));
        for key in ["tier", "A-b_c.9", "lucid.computing/tier", &name, &format!("{prefix}/{name}")] {
            assert!(is_label_key(key), "{key}");
        }
        let long = format!("{name}a");
        for key in ["", "-a", "a-", ".a", "a b", "/a", "a/", "a/b/c", "A.test/a", "a..b/c", "-a.b/c", &long] {
            assert!(!is_label_key(key), "{key}");
        }
    }
}
