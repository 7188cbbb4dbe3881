//! Accepted digests, and errors for all others.

use lucid_notary::Digest;
use lucid_notary::digest::Algorithm;
use proptest::prelude::*;

#[test]
fn a_digest_has_an_algorithm_and_digits() {
    for (algorithm, name, length) in [(Algorithm::Sha256, "sha256", 64), (Algorithm::Sha512, "sha512", 128)] {
        let text = format!("{name}:{}", "0a".repeat(length / 2));
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest.algorithm(), algorithm);
        assert_eq!(digest.hex(), &text[7..]);
        assert_eq!(digest.as_str(), text);
        assert_eq!(digest.to_string(), text);
        assert_eq!(serde_json::from_value::<Digest>(serde_json::to_value(&digest).unwrap()).unwrap(), digest);
    }
}

#[test]
fn invalid_digests_are_rejected_with_the_reason() {
    let a = |count| "a".repeat(count);
    for (text, reason) in [
        (String::new(), "has no ':'"),
        (a(64), "has no ':'"),
        ("sha256".to_owned(), "has no ':'"),
        (format!(":{}", a(64)), "an algorithm that is not supported"),
        (format!("SHA256:{}", a(64)), "an algorithm that is not supported"),
        (format!(" sha256:{}", a(64)), "an algorithm that is not supported"),
        (format!("sha384:{}", a(96)), "expected sha256 or sha512"),
        ("sha256:".to_owned(), "has 0 hexadecimal digits; expected 64 for sha256"),
        (format!("sha256:{}", a(63)), "has 63 hexadecimal digits"),
        (format!("sha256:{}", a(65)), "has 65 hexadecimal digits"),
        (format!("sha512:{}", a(64)), "expected 128 for sha512"),
        (format!("sha256:{}A", a(63)), "has 'A' at byte 70; expected 0 to 9 and a to f"),
        (format!("sha256:{}g", a(63)), "has 'g' at byte 70"),
        (format!("sha256:{}\n", a(64)), r"has '\n' at byte 71"),
        (format!("sha256:{}é", a(62)), "has 'é' at byte 69"),
        (format!("sha256:sha256:{}", a(64)), "has 's' at byte 7"),
    ] {
        let message = text.parse::<Digest>().expect_err(&text).to_string();
        assert!(message.contains(reason), "{message}");
        let message = serde_json::from_value::<Digest>(text.into()).unwrap_err().to_string();
        assert!(message.contains(reason), "{message}");
    }
}

proptest! {
    #[test]
    fn only_the_canonical_form_is_a_digest(text in prop_oneof![any::<String>(), "sha(256|512):[0-9a-fA]{62,66}"]) {
        let parsed = text.parse::<Digest>();
        let hex = text.strip_prefix("sha256:").unwrap_or("");
        let expected = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        prop_assert_eq!(parsed.is_ok(), expected);
        if let Ok(digest) = parsed {
            prop_assert_eq!(digest.to_string(), text);
        }
    }
}
