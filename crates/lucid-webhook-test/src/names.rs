//! Validation of Kubernetes names (`k8s.io/apimachinery/pkg/util/validation`).

/// Returns `true` for up to 63 of `[A-Za-z0-9._-]`, alphanumeric at both ends.
pub(crate) fn is_name(text: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_alphanumeric();
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
        && text.as_bytes().first().is_some_and(is_end)
        && text.as_bytes().last().is_some_and(is_end)
}

/// Returns `true` for a [name](is_name), optionally prefixed with a DNS subdomain and a slash (`IsQualifiedName`).
pub(crate) fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// Returns `true` for up to 253 characters of lower-case DNS labels and dots (`IsDNS1123Subdomain`).
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_the_rule_of_qualified_names() {
        let (longest, prefix) = ("a".repeat(63), "b".repeat(253));
        let with_prefix = format!("{prefix}/{longest}");
        for key in ["a", "A-b_c.9", "example.com/a", "a-b.c9/X", &longest, &with_prefix] {
            assert!(is_qualified_name(key), "{key:?}");
        }
        let (longer, longer_prefix) = (format!("{longest}a"), format!("{prefix}b/a"));
        for key in ["", "-a", "a-", "a b", "é", "/a", "a/", "a/b/c", "Example.com/a", "a..b/c", "a_b/c"] {
            assert!(!is_qualified_name(key), "{key:?}");
        }
        assert!(!is_qualified_name(&longer) && !is_qualified_name(&longer_prefix));
    }
}
