//! An image reference: read as the grammar says, or refused with a place in it; written back the same.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use lucid_notary::ImageReference;
use regex::Regex;

/// The grammar of distribution/reference, as its documentation writes it.
static GRAMMAR: LazyLock<Regex> = LazyLock::new(|| {
    let name = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?";
    let host = format!(r"(?:{name}(?:\.{name})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
    let component = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    let tag = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
    let digest = "sha256:[a-f0-9]{64}|sha512:[a-f0-9]{128}";
    let grammar = format!(r"\A(?:{host}/)?{component}(?:/{component})*(?::{tag})?(?:@(?:{digest}))?\z");
    Regex::new(&grammar).expect("a regular expression")
});

fuzz_target!(|data: &[u8]| {
    let Ok(text) = str::from_utf8(data) else { return };
    match text.parse::<ImageReference>() {
        Ok(reference) => {
            assert!(GRAMMAR.is_match(text), "{text:?}");
            let canonical = reference.canonical();
            assert!(GRAMMAR.is_match(&canonical), "{canonical:?}");
            assert_eq!(canonical.parse().as_ref(), Ok(&reference));
            assert!(reference.repository().len() <= 255);
            assert_eq!(reference.name(), format!("{}/{}", reference.registry(), reference.repository()));
            let json = serde_json::to_string(&reference).expect("text is JSON");
            assert_eq!(serde_json::from_str::<ImageReference>(&json).expect("what was written"), reference);
        }
        Err(error) => {
            assert!(text.is_char_boundary(error.offset()), "{} in {text:?}", error.offset());
            let message = error.to_string();
            assert!(message.len() < 4_000 && !message.chars().any(char::is_control), "{message:?}");
        }
    }
});
