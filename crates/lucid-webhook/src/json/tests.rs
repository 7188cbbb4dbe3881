//! What is read here is what serde_json reads.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::RawObject;
use super::cursor::Cursor;
use super::object::parse;
use super::outline::{MOST, Outline};
use super::reader;
use super::scan::{DEEPEST, value_end};

/// Where serde_json says that the value ends.
fn end(text: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// Text that the scanner has to look at closely: quotes, backslashes, brackets.
fn tricky_text() -> impl Strategy<Value = String> {
    prop_oneof![r#"[\\"{}\[\],:a é]{0,12}"#, r#"[\\"a]{0,150}"#, any::<String>()]
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        tricky_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(tricky_text(), inner, 0..6)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// JSON text with spaces wherever there may be some.
fn write(value: &Value, space: &str, text: &mut String) {
    text.push_str(space);
    match value {
        Value::Array(values) => {
            text.push('[');
            for (index, value) in values.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                write(value, space, text);
            }
            text.push_str(space);
            text.push(']');
        }
        Value::Object(members) => {
            text.push('{');
            for (index, (key, value)) in members.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                write(&Value::from(key.as_str()), space, text);
                text.push(':');
                write(value, space, text);
            }
            text.push_str(space);
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
    text.push_str(space);
}

fn written(value: &Value, space: &str) -> String {
    let mut text = String::new();
    write(value, space, &mut text);
    text
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
fn what_nests_too_deep_is_not_gone_through() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(value_end(nested(60).as_bytes(), 0).is_some());
    assert_eq!(value_end(nested(DEEPEST as usize + 1).as_bytes(), 0), None);
    // Nor does it overflow the stack.
    for depth in [127, 128, 200, 100_000] {
        let object = RawObject::new(format!(r#"{{"a":{}}}"#, nested(depth)).into());
        assert_eq!(object.decode::<Value>().is_ok(), depth < 127, "{depth}");
        object.decode::<Nested>().unwrap();
    }
    for depth in [100, 126, 127, 128, 200, 10_000] {
        let text = r#"{"inner":"#.repeat(depth) + "{}" + &"}".repeat(depth);
        assert_same_as::<Nested>(text.as_bytes());
    }
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Nested {
    inner: Option<Box<Nested>>,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Borrowed<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Metadata<'a> {
    name: Option<&'a str>,
    #[serde(borrow, default)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    generation: Option<i128>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "compared as text")]
struct Strict {
    kind: Option<String>,
    metadata: Option<StrictMetadata>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "compared as text")]
struct StrictMetadata {
    name: String,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Flat {
    kind: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Lists<'a> {
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Spec<'a> {
    #[serde(borrow, default)]
    containers: Vec<Container<'a>>,
    #[serde(default)]
    volumes: Vec<IgnoredAny>,
    raw: Option<&'a RawValue>,
    mode: Option<Mode>,
    either: Option<Either>,
    pair: Option<(i32, Wrapped)>,
    shape: Option<Shape>,
    unit: Option<()>,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    ports: Vec<Option<Port>>,
    wrapped: Option<Wrapped>,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Port {
    port: u16,
    weight: Option<f32>,
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Wrapped(Option<Port>);

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
enum Mode {
    Plain,
    Number(u8),
    Struct { port: Port },
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
#[serde(untagged)]
enum Either {
    Number(i64),
    Port(Port),
    Text(String),
}

#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
#[serde(tag = "type")]
enum Shape {
    Round { size: u8 },
    Square(Port),
}

/// Carries on when a field does not fit.
#[derive(Debug, Deserialize)]
#[allow(dead_code, reason = "compared as text")]
struct Lenient {
    #[serde(default, deserialize_with = "or_none")]
    metadata: Option<StrictMetadata>,
    #[serde(default, deserialize_with = "or_none")]
    kind: Option<u8>,
    #[serde(default)]
    spec: Option<Value>,
}

fn or_none<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(T::deserialize(deserializer).ok())
}

/// `text` as a `T`, read in both ways, is the same value or the same error. Text that is no JSON may be a value, if what
/// is wrong is in a part that is not read.
fn assert_same_as<'a, T: Deserialize<'a> + Debug>(text: &'a [u8]) {
    let parsed = parse::<T>(text).map(|value| format!("{value:?}"));
    let mut cursor = Cursor::new(text);
    let outline = Outline::pass(&mut cursor).filter(|_| cursor.is_at_end());
    // The outline lives as long as the object, and the object as long as the view.
    let outline = outline.map(|outline| &*Box::leak(Box::new(outline)));
    let read = outline.and_then(|outline| reader::read::<T>(text, outline)).map(|value| format!("{value:?}"));
    match (read, parsed) {
        (Some(read), Ok(parsed)) => assert_eq!(read, parsed),
        // Left to serde_json.
        (None, _) => {}
        (Some(read), Err(error)) => {
            let is_json = serde_json::from_slice::<IgnoredAny>(text).is_ok();
            assert!(!is_json, "{read} instead of {error}");
        }
    }
}

fn assert_same(text: &str) {
    let text = text.as_bytes();
    assert_same_as::<Borrowed<'_>>(text);
    assert_same_as::<Strict>(text);
    assert_same_as::<Flat>(text);
    assert_same_as::<Lists<'_>>(text);
    assert_same_as::<Lenient>(text);
    assert_same_as::<Option<Lists<'_>>>(text);
    assert_same_as::<BTreeMap<String, Box<RawValue>>>(text);
    assert_same_as::<Value>(text);
    assert_same_as::<&RawValue>(text);
    assert_same_as::<Pod>(text);
    assert_same_as::<IgnoredAny>(text);
}

const OBJECT: &str = r#"{"kind" : "Pod", "apiVersion":"v1", "metadata":{"name":"web","labels":{"a":"b","é\n":"\u00e9"},"generation":170141183460469231731687303715884105727,
"ownerReferences":[{"uid":"1","controller":true}],"annotations":{"x":"{\"y\":[1,\"}\"]}"}},
"spec":{"volumes":[{"name":"v"},{}], "containers" : [ {"name":"a\"b","ports":[{"port":80,"weight":0.1},null],"wrapped":{"port":1}} , {"name":"c","wrapped":null,"x":[[{}]]}],
"raw":{ "any": [1, 2] },"mode":{"Struct":{"port":{"port":5}}},"either":{"port":6},"pair":[1,{"port":2}],"shape":{"type":"Square","port":3},"unit":null},"status":{"phase":"\ud83d\ude00","n":[1e3,-0.0,18446744073709551615]}}"#;

const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"a":"b"},"creationTimestamp":"2026-01-05T08:00:00Z"},
"spec":{"containers":[{"name":"a","image":"b","args":["--x=\"1\""],"env":[{"name":"A","value":"1"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"x"}}}],"ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1"}}}]}}"#;

const EDITS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    ",",
    ":",
    "\\",
    " ",
    "0",
    "n",
    "\n",
    "\"kind\":1,",
    "null",
    "{}",
    "é",
    "\\u0061",
    "\"name\":\"x\",",
];

#[test]
fn what_is_usual_is_read_here() {
    let is_read = |text: &'static str| {
        Outline::pass(&mut Cursor::new(text.as_bytes())).map(|outline| {
            let outline = Box::leak(Box::new(outline));
            (
                reader::read::<Borrowed<'_>>(text.as_bytes(), outline).is_some(),
                reader::read::<Lists<'_>>(text.as_bytes(), outline).is_some(),
                reader::read::<Pod>(text.as_bytes(), outline).is_some(),
            )
        })
    };
    assert_eq!(is_read(OBJECT), Some((true, true, false)));
    assert_eq!(is_read(POD), Some((true, false, true)));
}

#[test]
fn one_edit_anywhere_is_read_as_serde_json_does() {
    for object in [OBJECT, POD] {
        for at in (0..object.len()).filter(|at| object.is_char_boundary(*at)) {
            let (before, after) = object.split_at(at);
            assert_same(&format!("{before}{}", after.chars().skip(1).collect::<String>()));
            for edit in EDITS {
                assert_same(&format!("{before}{edit}{after}"));
            }
        }
    }
}

proptest! {
    #[test]
    fn any_object_is_read_as_serde_json_does(value in json(), space in "[ \n\r\t]{0,2}") {
        assert_same(&written(&value, &space));
        assert_same(&written(&serde_json::json!({"metadata": value, "kind": "Pod", "spec": value}), &space));
    }

    #[test]
    fn edits_are_read_as_serde_json_does(edits in proptest::collection::vec((any::<proptest::sample::Index>(), proptest::sample::select(EDITS)), 1..4), pod in any::<bool>()) {
        let mut text = if pod { POD } else { OBJECT }.to_owned();
        for (at, edit) in edits {
            let at = at.index(text.len());
            if text.is_char_boundary(at) {
                text.insert_str(at, edit);
            }
        }
        assert_same(&text);
    }
}

#[test]
fn bytes_that_are_no_utf8_are_refused_where_they_are_read() {
    let object = RawObject::new(Bytes::from_static(b"{\"kind\":\"\xff\",\"metadata\":{}}"));
    object.view::<Borrowed<'_>>().unwrap_err();
}

#[test]
fn an_object_of_many_members_has_no_outline() {
    for (count, expected) in [(MOST, true), (MOST + 1, false)] {
        let members: Vec<_> = (0..count).map(|number| format!(r#""k{number}":{number}"#)).collect();
        let text = Bytes::from(format!(r#"{{{}, "kind":"Pod"}}"#, members[1..].join(",")));
        assert_eq!(Outline::pass(&mut Cursor::new(&text)).is_some(), expected);
        let mut cursor = Cursor::new(&text);
        let object = RawObject::pass(&mut cursor, &text).unwrap();
        assert!(cursor.is_at_end());
        assert_eq!(object.view::<Borrowed<'_>>().unwrap().kind.as_deref(), Some("Pod"));
        assert_eq!(object, RawObject::new(text));
    }
}
