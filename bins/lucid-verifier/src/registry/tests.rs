use super::Registry;
use lucid_notary::Digest;

/// Expands `A`, `B` and `C` to digests.
fn expand(case: &str) -> String {
    ["A", "B", "C"].iter().fold(case.to_owned(), |text, name| {
        text.replace(&format!("${name}"), &format!("sha256:{}", name.to_lowercase().repeat(64)))
    })
}

fn digest(name: &str) -> Digest {
    expand(name).parse().unwrap()
}

#[test]
fn only_digests_and_mappings_are_notarized() {
    let registry = Registry::parse(&expand(
        "notarized:\n- $A\n- digest: $B\n  image: busybox:1@$B\n  note: reviewed # by hand\n",
    ))
    .unwrap();
    assert_eq!(registry.count(), 2);
    assert!(registry.entry(&digest("$A")).is_some_and(|entry| entry.image.is_none() && entry.note.is_none()));
    let entry = registry.entry(&digest("$B")).unwrap();
    assert_eq!(entry.image.as_ref().unwrap().name(), "docker.io/library/busybox");
    assert_eq!(entry.note.as_deref(), Some("reviewed"));
    assert!(registry.entry(&digest("$C")).is_none());
    let sha512 = format!("sha512:{}", "a".repeat(128));
    let registry = Registry::parse(&format!("notarized: [\"{sha512}\"]")).unwrap();
    assert!(registry.entry(&sha512.parse().unwrap()).is_some());
    assert!(registry.entry(&digest("$A")).is_none());
}

#[test]
fn an_empty_list_is_an_empty_registry() {
    assert_eq!(Registry::parse("notarized: []").unwrap().count(), 0);
}

#[test]
fn errors_have_line_column_and_key() {
    for (text, line, column, key, fault) in [
        ("", 1, 1, ".", "missing field `notarized`"),
        ("# nothing\n", 2, 1, ".", "missing field `notarized`"),
        ("text", 1, 1, ".", "expected a mapping with the key `notarized`"),
        ("notarized:", 1, 11, "notarized", "expected a list"),
        ("notarized: {}", 1, 12, "notarized", "expected a list"),
        ("notarized: $A", 1, 12, "notarized", "expected a list"),
        ("notarised: []", 1, 1, "notarised", "unknown field `notarised`, expected `notarized`"),
        ("notarized: []\nrevoked: []", 2, 1, "revoked", "unknown field `revoked`"),
        ("notarized: []\nnotarized: []", 1, 1, ".", "duplicate field `notarized`"),
        ("notarized: []\n---\nnotarized: [$A]", 1, 1, ".", "more than one document"),
        ("notarized:\n- $A\n- sha256:abc", 3, 3, "notarized[1]", "has 3 hexadecimal digits"),
        ("notarized:\n- $A\n- 7", 3, 3, "notarized[1]", "expected a digest or a mapping"),
        ("notarized:\n- $A\n- [$B]", 3, 3, "notarized[1]", "expected a digest or a mapping"),
        ("notarized:\n- $A\n-", 3, 2, "notarized[1]", "expected a digest or a mapping"),
        ("notarized:\n- $A\n- $B\n- $A", 4, 3, "notarized[2]", "is listed twice"),
        ("notarized:\n- $A\n- {digest: $A}", 3, 3, "notarized[1]", "is listed twice"),
        ("notarized:\n- note: x", 2, 3, "notarized[0]", "missing field `digest`"),
        ("notarized:\n- digest: $A\n  img: x", 3, 3, "notarized[0].img", "unknown field `img`, expected"),
        ("notarized:\n- digest: nope", 2, 11, "notarized[0].digest", "digest \"nope\" has no ':'"),
        ("notarized:\n- digest: $A\n  image: Foo", 3, 10, "notarized[0].image", "has 'F' in the repository"),
        (
            "notarized:\n- digest: $A\n  image: foo@$B",
            2,
            3,
            "notarized[0]",
            "but the entry notarizes sha256:a",
        ),
        ("notarized:\n- $A\n  - $B\n\t- $C", 4, 1, "notarized", "found a tab character"),
    ] {
        let error = Registry::parse(&expand(text)).expect_err(text);
        assert_eq!((error.line, error.column, error.key.as_str()), (line, column, key), "{text:?}: {error}");
        assert!(error.fault.contains(fault), "{text:?}: {error}");
        let message = error.to_string();
        assert!(message.starts_with(&format!("line {line}, column {column}, key `{key}`: ")), "{message}");
        assert!(message.contains("expected the key `notarized` with a list of digests"), "{message}");
    }
}
