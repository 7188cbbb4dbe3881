//! The reader against serde_json.

#![allow(dead_code, reason = "values are compared as text")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use bytes::Bytes;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::RawObject;
use super::super::cursor::Cursor;
use super::super::object::parse;
use super::super::outline::{MOST, Outline};
use super::super::reader;
use super::{json, written};

#[derive(Debug, Deserialize)]
struct Nested {
    inner: Option<Box<Nested>>,
}

#[derive(Debug, Deserialize)]
struct Borrowed<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata<'a> {
    name: Option<&'a str>,
    #[serde(borrow, default)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    generation: Option<i128>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Strict {
    kind: Option<String>,
    metadata: Option<StrictMetadata>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StrictMetadata {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Flat {
    kind: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Lists<'a> {
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Debug, Deserialize)]
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
struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    ports: Vec<Option<Port>>,
    wrapped: Option<Wrapped>,
}

#[derive(Debug, Deserialize)]
struct Port {
    port: u16,
    weight: Option<f32>,
}

#[derive(Debug, Deserialize)]
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

/// Large types, though not all that there is.
#[derive(Debug, Deserialize)]
struct Partial {
    metadata: ObjectMeta,
    spec: Option<PodSpec>,
}

/// Carries on when a field does not fit.
#[derive(Debug, Deserialize)]
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

/// Nothing that an object fits, nor minds it.
#[derive(Debug)]
struct Number(Option<u8>);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        or_none(deserializer).map(Self)
    }
}

/// Takes no more than the first member, which is an error if there are others.
#[derive(Debug)]
struct First(String);

impl<'de> Deserialize<'de> for First {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FirstOf;
        impl<'de> Visitor<'de> for FirstOf {
            type Value = First;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<First, A::Error> {
                let first: Option<(String, IgnoredAny)> = members.next_entry()?;
                Ok(First(first.map(|(key, _)| key).unwrap_or_default()))
            }
        }
        deserializer.deserialize_struct("First", &[], FirstOf)
    }
}

#[test]
fn members_that_the_type_leaves_are_an_error() {
    for text in [r#"{"a":1}"#, r#"{"a":1,"b":2}"#, "{}"] {
        assert_same_as::<First>(text.as_bytes());
        assert_same_as::<Inner<First>>(format!(r#"{{"x":1,"inner":{text}}}"#).as_bytes());
    }
}

#[derive(Debug, Deserialize)]
struct Inner<T> {
    inner: T,
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
    assert_same_as::<Number>(text);
    assert_same_as::<Partial>(text);
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

fn is_read<T: Deserialize<'static>>(text: &'static str) -> bool {
    let outline = Outline::pass(&mut Cursor::new(text.as_bytes())).unwrap();
    reader::read::<T>(text.as_bytes(), Box::leak(Box::new(outline))).is_some()
}

#[test]
fn what_is_usual_is_read_here() {
    assert!(is_read::<Borrowed<'_>>(OBJECT));
    assert!(is_read::<Lists<'_>>(OBJECT));
    assert!(is_read::<Flat>(OBJECT));
    assert!(is_read::<Value>(OBJECT));
    assert!(is_read::<Partial>(POD));
    assert!(is_read::<Pod>(POD));
}

#[test]
fn one_edit_anywhere_is_read_as_serde_json_does() {
    for at in (0..OBJECT.len()).filter(|at| OBJECT.is_char_boundary(*at)) {
        let (before, after) = OBJECT.split_at(at);
        assert_same(&format!("{before}{}", after.chars().skip(1).collect::<String>()));
        for edit in ["\"", "}"] {
            assert_same(&format!("{before}{edit}{after}"));
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
    fn edits_are_read_as_serde_json_does(edits in proptest::collection::vec((any::<Index>(), select(EDITS)), 1..4), pod in any::<bool>()) {
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
fn what_nests_deep_is_read_as_serde_json_does_and_overflows_no_stack() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
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
