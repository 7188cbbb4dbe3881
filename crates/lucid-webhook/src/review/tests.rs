//! Tests that both parsers agree.

#![allow(clippy::panic, reason = "helpers of tests")]

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1", "kind":"AdmissionReview","request":{"uid":"u-1",
"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
"requestKind":{"group":"","version":"v1","kind":"Pod"},"requestResource":{"group":"","version":"v1","resource":"pods"},
"subResource":"resize","requestSubResource":"resize","name":"web","namespace":"shop","operation":"UPDATE",
"userInfo":{"username":"jané","uid":"7","groups":["a","b"],"extra":{"a":["b"]}},"new":{"in":[1.5]},
"object":{"kind":"Pod","metadata":{"name":"web \"\\"}},"oldObject":{"kind":"Pod"} , "dryRun":true,"options":null}}"#;

/// Formats a request without its arrival time.
fn shown(mut request: AdmissionRequest) -> String {
    request.arrival = request.deadline;
    let objects = [&request.object, &request.old_object, &request.options];
    let texts = objects
        .map(|object| object.as_ref().map(|object| String::from_utf8(object.as_bytes().to_vec()).unwrap()));
    format!("{request:?} {texts:?}")
}

/// Returns `true` if the objects of a request are valid JSON.
fn has_json(request: &AdmissionRequest) -> bool {
    let objects = [&request.object, &request.old_object, &request.options];
    objects.into_iter().flatten().all(|object| serde_json::from_slice::<&RawValue>(object.as_bytes()).is_ok())
}

fn assert_same(body: impl Into<Bytes>) {
    let body = body.into();
    let now = Instant::now();
    match (AdmissionRequest::from_json(&body, now), AdmissionRequest::parse(&body, now)) {
        (Ok(request), Ok(parsed)) => assert_eq!(shown(request), shown(parsed)),
        (Err(error), Err(parsed)) => assert_eq!(format!("{error:?}"), format!("{parsed:?}")),
        (Ok(request), Err(error)) => assert!(!has_json(&request), "refused with {error}"),
        (Err(error), Ok(_)) => panic!("accepted only by serde_json: {error}"),
    }
}

/// Members to build reviews from, most of them invalid in some way.
static MEMBERS: LazyLock<Vec<(&str, Vec<Value>)>> = LazyLock::new(|| {
    let group = json!({"group": "apps", "version": "v1", "kind": "Pod", "resource": "pods", "more": 1});
    let groups =
        vec![group, json!({}), Value::Null, json!({"group": null}), json!(["a", "b", "c"]), json!(1)];
    let texts = vec![json!("a"), json!("\"\\\né"), json!(""), Value::Null, json!(1), json!({})];
    let objects = vec![
        json!({"a": {"b": [1, "]}"]}, "é\n": null}),
        json!({}),
        Value::Null,
        json!([1]),
        json!("text"),
        json!(-1.5e3),
        json!({"deep": (0..200).fold(json!(1), |value, _| json!([value]))}),
    ];
    let users = vec![
        json!({"username": "jane", "groups": ["a"], "extra": {"k": ["v"], "n": null}}),
        json!({"username": null, "groups": null, "extra": null}),
        Value::Null,
        json!({"username": 1}),
    ];
    let operations = ["CREATE", "UPDATE", "DELETE", "CONNECT", "create"].map(Value::from);
    let mut members: Vec<(&str, Vec<Value>)> =
        vec![("userInfo", users), ("operation", [&operations[..], &[json!({"CREATE": null})]].concat())];
    members.push(("dryRun", vec![json!(true), json!(false), Value::Null, json!("true")]));
    members.push(("later", objects.clone()));
    members.extend(["kind", "resource", "requestKind", "requestResource"].map(|key| (key, groups.clone())));
    members.extend(["object", "oldObject", "options"].map(|key| (key, objects.clone())));
    let names = ["uid", "name", "namespace", "subResource", "requestSubResource"];
    members.extend(names.map(|key| (key, texts.clone())));
    members
});

prop_compose! {
    /// A member of the request, sometimes with an escaped key.
    fn member()(
        (key, values) in proptest::sample::select(&**MEMBERS),
        value in any::<proptest::sample::Index>(),
        // Mostly the first value, which is valid.
        is_first in proptest::bool::weighted(0.9),
        is_escaped in proptest::bool::weighted(0.02),
        space in "[ \n\r\t]{0,2}",
    ) -> String {
        let value = if is_first { &values[0] } else { value.get(&values) };
        let key = if is_escaped { format!("\\u{:04x}{}", key.as_bytes()[0], &key[1..]) } else { key.to_owned() };
        format!("{space}\"{key}\"{space}:{space}{value}{space}")
    }
}

prop_compose! {
    fn review()(
        members in proptest::collection::vec(member(), 0..12),
        version in prop_oneof![9 => Just(r#""apiVersion":"admission.k8s.io/v1","#), 1 => Just(""), 1 => Just(r#""apiVersion":"v1","#)],
        uid in prop_oneof![9 => Just(r#""uid":"1","#), 1 => Just("")],
        tail in prop_oneof![9 => Just(""), 1 => Just(" \n"), 1 => Just("{}")],
        kind in prop_oneof![9 => Just(r#","kind":"AdmissionReview""#), 1 => Just(r#","kind":null"#), 1 => Just(r#","kind":"AdmissionReview","kind":"AdmissionReview""#)],
    ) -> String {
        let members = members.join(",");
        format!(r#"{{{version}"request":{{{uid}"operation":"CREATE","#) + &members + "}" + kind + "}" + tail
    }
}

proptest! {
    #[test]
    fn both_parsers_agree_on_generated_reviews(review in review()) {
        // Most reviews have an operation already; a second one would be a duplicate.
        assert_same(review.replacen(r#""operation":"CREATE","#, "", review.matches("operation").count() - 1));
        assert_same(review);
    }

    #[test]
    fn both_parsers_agree_on_changed_bytes(
        edits in proptest::collection::vec((0..REVIEW.len(), prop_oneof![any::<u8>(), proptest::sample::select(br#"{}[]",:\ 0n"#.to_vec())]), 1..5),
    ) {
        let mut body = REVIEW.as_bytes().to_vec();
        for (at, byte) in edits {
            body[at] = byte;
        }
        assert_same(body);
    }

    #[test]
    fn both_parsers_agree_on_cut_and_joined_reviews(cut in 0..REVIEW.len(), from in 0..REVIEW.len()) {
        assert_same([&REVIEW.as_bytes()[..cut], &REVIEW.as_bytes()[from..]].concat());
    }
}

#[test]
fn both_parsers_agree_on_truncated_and_altered_reviews() {
    for at in 0..REVIEW.len() {
        let (before, after) = (&REVIEW.as_bytes()[..at], &REVIEW.as_bytes()[at + 1..]);
        assert_same([before, after].concat());
        for byte in br#"{}[]",:\ 0n"# {
            assert_same([before, &[*byte], after].concat());
        }
        assert_same([before, b"\xff", after].concat());
    }
}

#[test]
fn requests_of_the_api_server_take_the_fast_path() {
    assert!(scanned::read(&REVIEW.into()).is_some());
    let reordered = r#" {"request" : { "operation" : "DELETE" , "oldObject" : {} , "uid" : "1" } ,
        "kind" : "AdmissionReview" , "apiVersion" : "admission.k8s.io/v1" } "#;
    assert!(scanned::read(&reordered.into()).is_some());
}

#[test]
fn unusual_requests_take_the_slow_path() {
    for (what, from, to) in [
        ("another kind", "AdmissionReview", "AdmissionRevie"),
        ("another version", "k8s.io/v1", "k8s.io/v1beta1"),
        ("an escape in a key", "\"uid\"", r#""u\u0069d""#),
        ("a key twice", "\"requestKind\"", "\"kind\""),
        ("an object twice", "\"oldObject\"", "\"object\""),
        ("no uid", "\"uid\"", "\"id\""),
        ("no operation", "\"operation\"", "\"operatio\""),
        ("an object that is none", r#""oldObject":{"kind":"Pod"}"#, r#""oldObject":["kind"]"#),
        ("something behind it", "\"options\":null}}", "\"options\":null}}}"),
        ("a trailing comma", "\"options\":null}}", "\"options\":null,}}"),
        ("an unknown member that is no JSON", "[1.5]", "[1.]"),
        ("a control character in a key", "\"new\"", "\"ne\n\""),
    ] {
        assert!(REVIEW.contains(from));
        let body = Bytes::from(REVIEW.replace(from, to));
        assert!(scanned::read(&body).is_none(), "{what}");
        assert_same(body);
    }
}

#[test]
fn invalid_utf8_takes_the_slow_path() {
    let (before, after) = REVIEW.split_at(REVIEW.find("web \\").unwrap());
    let body = Bytes::from([before.as_bytes(), b"\xff", after.as_bytes()].concat());
    assert!(scanned::read(&body).is_none());
    assert_same(body);
}

#[test]
fn an_invalid_object_is_accepted_and_does_not_decode() {
    let body = Bytes::from(REVIEW.replace(r#""kind":"Pod","metadata""#, r#""kind":"Pod","metadata":1 "x""#));
    let request = AdmissionRequest::from_json(&body, Instant::now()).unwrap();
    let object = request.object.unwrap();
    object.decode::<Value>().unwrap_err();
    object.view::<BTreeMap<String, serde::de::IgnoredAny>>().unwrap_err();
}
