//! The scanner against the end that serde_json finds.

use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::super::cursor::Cursor;
use super::super::outline::Outline;
use super::super::scan::{DEEPEST, value_end};
use super::{json, written};

/// Where serde_json says that the value ends.
fn end(text: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

proptest! {
    #[test]
    fn a_value_ends_where_serde_json_says(value in json(), space in "[ \n\r\t]{0,3}", after in "[ ,}\\]\"\\\\{]{0,80}") {
        let text = written(&value, &space);
        let text = text.trim_start();
        let whole = format!("{text}{after}");
        // Behind a number, serde_json may want to read on.
        let expected = end(text.as_bytes());
        prop_assert_eq!(value_end(whole.as_bytes(), 0), expected, "{}", whole);
        prop_assert_eq!(value_end(format!("{:70}{whole}", "").as_bytes(), 70), expected.map(|end| end + 70));
    }

    #[test]
    fn no_bytes_make_the_scanner_panic(text in proptest::collection::vec(any::<u8>(), 0..300), at in 0..310_usize) {
        value_end(&text, at);
        Outline::pass(&mut Cursor { text: &text, at });
    }

    #[test]
    fn no_tricky_bytes_make_the_scanner_panic(text in r#"[{\["\\][{}\[\]"\\,:1 ]{0,200}"#) {
        if let Some(end) = value_end(text.as_bytes(), 0) {
            prop_assert!(end > 0 && end <= text.len());
        }
        Outline::pass(&mut Cursor::new(text.as_bytes()));
    }
}

#[test]
fn strings_and_escapes_may_cross_blocks() {
    for length in 55..75 {
        for at in 0..length {
            for escape in [r#"\""#, r"\\", r#"\\\""#, r"\\\\", r"\u005c", r#"\\\\\\\""#, "}", "]", "é"] {
                let (before, after) = ("a".repeat(at), "b".repeat(length - at));
                for text in [
                    format!(r#""{before}{escape}{after}""#),
                    format!(r#"["{before}{escape}{after}"]"#),
                    format!(r#"{{"{before}{escape}{after}":"","{before}{escape}":{{}}}}"#),
                ] {
                    assert_eq!(value_end(format!("{text}\"}}]").as_bytes(), 0), Some(text.len()), "{text}");
                }
            }
        }
    }
}

#[test]
fn a_run_of_backslashes_may_be_longer_than_a_block() {
    for pairs in 0..140 {
        let text = format!(r#"["{}","]"]"#, r"\\".repeat(pairs));
        assert_eq!(value_end(format!("{text}]").as_bytes(), 0), Some(text.len()), "{pairs}");
    }
}

#[test]
fn brackets_match_at_the_end_of_a_block_and_behind_it() {
    for length in 0..140 {
        for inner in ["[]", "{}", "[[],[]]", r#"{"a":[]}"#] {
            let text = format!("[{:length$}{inner}{:length$}]", "", "");
            assert_eq!(value_end(format!("{text}]").as_bytes(), 0), Some(text.len()), "{text}");
            assert_eq!(value_end(&text.as_bytes()[..text.len() - 1], 0), None, "{text}");
        }
    }
}

#[test]
fn scalars_end_where_they_cannot_go_on() {
    for (text, end) in [
        ("1,", Some(1)),
        ("-1.5E+3}", Some(7)),
        ("null\n", Some(4)),
        ("true", Some(4)),
        (",", None),
        ("", None),
        ("]", None),
        ("\"", None),
        ("\"\\", None),
    ] {
        assert_eq!(value_end(text.as_bytes(), 0), end, "{text}");
    }
}

#[test]
fn what_nests_too_deep_has_no_end() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(value_end(nested(60).as_bytes(), 0).is_some());
    for depth in [DEEPEST as usize + 1, 1000] {
        assert_eq!(value_end(nested(depth).as_bytes(), 0), None);
    }
}
