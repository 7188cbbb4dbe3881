//! Validation of names as in Kubernetes (`k8s.io/apimachinery/pkg/util/validation`), names of the local host, and
//! suggestions for misspelled names.

use std::net::IpAddr;

use strsim::osa_distance;

/// Maximum length of names that [`nearest`] compares: that of container names.
const LONGEST: usize = 63;

/// Returns `true` for up to 63 of `[A-Za-z0-9._-]`, alphanumeric at both ends: the name part of a
/// [qualified name](is_qualified_name), such as the key of an audit annotation.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.len() <= 63
        && has_ends(text, |byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Returns `true` for a [name](is_name), optionally prefixed with a DNS subdomain and a slash (`IsQualifiedName`): the
/// key of a label.
#[must_use]
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// Returns `true` for the key of an annotation: a [qualified name](is_qualified_name), whose prefix may be in upper
/// case.
#[must_use]
pub fn is_annotation_key(text: &str) -> bool {
    is_qualified_name(&text.to_ascii_lowercase())
}

/// Returns `true` for the value of a label: a [name](is_name) or the empty text (`IsValidLabelValue`).
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// Returns `true` for up to 253 characters of DNS labels and dots (`IsDNS1123Subdomain`, which does not limit the
/// labels).
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_text)
}

/// Returns `true` for up to 63 lower-case alphanumerics and hyphens, alphanumeric at both ends (`IsDNS1123Label`).
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_text(text)
}

/// Returns `true` for a DNS subdomain of three labels or more (`IsFullyQualifiedName`): the name of a webhook.
#[must_use]
pub fn is_fully_qualified_name(text: &str) -> bool {
    is_dns_subdomain(text) && text.split('.').count() >= 3
}

/// Returns `true` if the name commonly refers to the local host: `localhost` and its subdomains,
/// loopback addresses, and names that distributions write to the hosts file.
#[must_use]
pub fn is_loopback_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    // RFC 6761, section 6.3. The other names are written to the hosts file by the kubelet or by distributions.
    let last = name.rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("localhost")
        || ["localhost.localdomain", "localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the closest of `known` that is at most `edits` edits away from `word`; the first of several. An edit
/// inserts, removes or replaces a character, or swaps two neighbors.
///
/// ```
/// let known = ["secured", "auditors"];
/// assert_eq!(lucid_text::names::nearest("secure", known, 2), Some("secured"));
/// assert_eq!(lucid_text::names::nearest("name", known, 2), None);
/// ```
#[must_use]
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>, edits: usize) -> Option<&'k str> {
    let alike = |known: &&str| word.len() <= LONGEST && word.len().abs_diff(known.len()) <= edits;
    let known = known.into_iter().filter(alike).map(|known| (osa_distance(word, known), known));
    known
        .filter(|(distance, _)| *distance <= edits)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

fn is_dns_text(text: &str) -> bool {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    has_ends(text, is_end) && text.bytes().all(|byte| is_end(byte) || byte == b'-')
}

fn has_ends(text: &str, is_end: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().zip(bytes.last()).is_some_and(|(first, last)| is_end(*first) && is_end(*last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_qualified_names() {
        let (longest, prefix) = ("a".repeat(63), "b".repeat(253));
        let with_prefix = format!("{prefix}/{longest}");
        for key in ["a", "A-b_c.9", "example.com/a", "a-b.c9/X", &longest, &with_prefix] {
            assert!(is_qualified_name(key), "{key:?}");
        }
        let (longer, longer_prefix) = (format!("{longest}a"), format!("{prefix}b/a"));
        for key in [
            "",
            "-a",
            "a-",
            ".a",
            "a b",
            "é",
            "/a",
            "a/",
            "a/b/c",
            "Example.com/a",
            "a..b/c",
            "-a.b/c",
            "a_b/c",
        ] {
            assert!(!is_qualified_name(key), "{key:?}");
        }
        assert!(!is_qualified_name(&longer) && !is_qualified_name(&longer_prefix));
        assert!(is_annotation_key("Example.com/a") && !is_annotation_key("a_b/c"));
    }

    #[test]
    fn recognizes_loopback_names() {
        for name in
            ["localhost", "LOCALHOST", "localhost.", "a.localhost", "ip6-loopback", "127.0.0.1", "127.0.0.2"]
        {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in ["", "localhosts", "mylocalhost", "localhost.example.com", "ledger.internal", "10.0.0.1"]
        {
            assert!(!is_loopback_name(name), "{name}");
        }
    }

    #[test]
    fn only_single_labels_are_limited_to_63_characters() {
        let (fits, long) = ("a".repeat(63), "a".repeat(64));
        assert!(is_dns_label(&fits) && !is_dns_label(&long) && !is_dns_label("a.b"));
        assert!(is_dns_subdomain(&long) && is_dns_subdomain("a.b-c.9") && !is_dns_subdomain("a.-b"));
    }
}
