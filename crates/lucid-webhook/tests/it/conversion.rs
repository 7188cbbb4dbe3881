//! Conversion requests as sent by kube-apiserver.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use lucid_webhook::{BoxError, Converter, Router};
use lucid_webhook_test::round_trip::{self, RoundTripError};
use prometheus_client::registry::Registry;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::common::{Written, another_subscriber, exposed};
use crate::cron_tab::{CronTabV1, CronTabV2, builder, definition, v1_to_v2, v2_to_v1};
use crate::{example, widget};

const V1: &str = "stable.example.com/v1";
const V2: &str = "stable.example.com/v2";

fn converter() -> Converter {
    builder().build(&definition()).unwrap()
}

fn v1(name: &str) -> Value {
    json!({
        "apiVersion": V1,
        "kind": "CronTab",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "generation": 7},
        "spec": {"cronSpec": "* * * * */5", "image": "cron:1", "replicas": 3},
    })
}

fn v2(name: &str) -> Value {
    converter().convert_object(&v1(name), "v2").unwrap()
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

fn envelope(request: &Value) -> String {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request})
        .to_string()
}

fn review(desired: &str, objects: Value) -> String {
    envelope(&json!({"uid": "705ab4f5", "desiredAPIVersion": desired, "objects": objects}))
}

/// Status and body of the response to a request with this query.
async fn send(router: Router, query: &str, body: impl Into<Bytes>) -> (u16, Value) {
    let request = Request::post(format!("/convert{query}")).header("content-type", "application/json");
    let request = request.body(Full::new(body.into())).unwrap();
    let (head, body) = router.oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), serde_json::from_slice(&body).unwrap())
}

fn router(converter: &Converter) -> Router {
    Router::new().convert("/convert", converter.clone())
}

/// Outcome, as counted, and response.
async fn ask_within(converter: &Converter, query: &str, body: impl Into<Bytes>) -> (String, Value) {
    let mut registry = Registry::default();
    let router = router(converter).with_metrics(&mut registry);
    let (status, mut review) = send(router, query, body).await;
    assert_eq!(status, 200, "{review}");
    assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(review["kind"], "ConversionReview");
    assert_eq!(review["response"]["uid"], "705ab4f5");
    let counted = exposed(&registry);
    let outcomes = counted.lines().filter_map(|line| line.strip_suffix("\"} 1")?.split_once("outcome=\""));
    let [(_, outcome)] = outcomes.collect::<Vec<_>>()[..] else { panic!("{counted}") };
    (outcome.to_owned(), review["response"].take())
}

async fn ask(converter: &Converter, body: impl Into<Bytes>) -> (String, Value) {
    ask_within(converter, "?timeout=20s", body).await
}

async fn converted(converter: &Converter, desired: &str, objects: Value) -> Value {
    let (outcome, mut response) = ask(converter, review(desired, objects)).await;
    assert_eq!(outcome, "converted", "{response}");
    assert_eq!(response["result"], json!({"status": "Success"}));
    response["convertedObjects"].take()
}

async fn failure(converter: &Converter, expected: &str, desired: &str, objects: Value) -> String {
    let (outcome, response) = ask(converter, review(desired, objects)).await;
    assert_eq!(outcome, expected, "{response}");
    assert_eq!(response["result"]["status"], "Failure");
    assert_eq!(response["convertedObjects"], json!([]));
    response["result"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn both_directions_change_only_versioned_fields() {
    let converter = converter();
    let there = converted(&converter, V2, json!([v1("a")])).await;
    let schedule = json!({"minute": "*", "hour": "*", "dayOfMonth": "*", "month": "*", "dayOfWeek": "*/5"});
    let spec = json!({"schedule": schedule, "image": "cron:1", "replicas": 3});
    assert_eq!(there, json!([with(with(v1("a"), "/apiVersion", json!(V2)), "/spec", spec)]));
    assert_eq!(converted(&converter, V1, there).await, json!([v1("a")]));
}

#[tokio::test]
async fn a_mixed_batch_keeps_its_order_and_converted_objects() {
    let converter = converter();
    let object = |i: usize| match i % 3 {
        0 => v1(&format!("n{i}")),
        1 => v2(&format!("n{i}")),
        // No conversion function would accept this.
        _ => with(v2(&format!("n{i}")), "/spec", json!({"unknown": 1.50, "z": 1, "a": [null]})),
    };
    let objects: Vec<_> = (0..500).map(object).collect();
    let expected: Vec<_> =
        (0..500).map(|i| if i % 3 == 0 { v2(&format!("n{i}")) } else { object(i) }).collect();
    assert_eq!(converted(&converter, V2, json!(objects)).await, json!(expected));
}

#[tokio::test]
async fn an_empty_list_converts_to_an_empty_list() {
    for objects in [json!([]), Value::Null] {
        assert_eq!(converted(&converter(), V2, objects).await, json!([]));
    }
    let absent = r#"{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1",
        "request":{"desiredAPIVersion":"stable.example.com/v2","uid":"705ab4f5"}}"#;
    let (outcome, response) = ask(&converter(), absent).await;
    assert_eq!((&*outcome, &response["convertedObjects"]), ("converted", &json!([])));
}

#[tokio::test]
async fn partial_failures_name_object_versions_and_cause() {
    let broken = with(v1("nightly"), "/spec/cronSpec", json!("* *"));
    let objects = json!([v1("a"), v2("b"), broken, v1("c")]);
    assert_eq!(
        failure(&converter(), "errored", V2, objects).await,
        "objects[2]: failed to convert CronTab default/nightly from v1 to v2: \
         spec.cronSpec: expected 5 fields, found 2: \"* *\""
    );
    let broken = with(v1("nightly"), "/spec/replicas", json!("three"));
    let message = failure(&converter(), "errored", V2, json!([broken])).await;
    assert!(message.contains("it does not decode as v1: spec.replicas: invalid type: string"), "{message}");
}

#[tokio::test]
async fn objects_of_other_resources_are_rejected() {
    let cases = [
        (json!(5), "objects[0]: not an object of the Kubernetes API: it is not a JSON object"),
        (json!(null), "objects[0]: not an object"),
        (json!([]), "objects[0]: not an object"),
        (
            with(v1("a"), "/apiVersion", json!(null)),
            "objects[0]: CronTab default/a is in (no apiVersion); expected a CronTab in one of stable.example.com/v2, \
             stable.example.com/v1",
        ),
        (with(v1("a"), "/apiVersion", json!(1)), "apiVersion is not a string"),
        (
            with(v1("a"), "/apiVersion", json!("stable.example.com/v9")),
            "is in stable.example.com/v9; expected",
        ),
        (with(v1("a"), "/apiVersion", json!("other.example.com/v1")), "is in other.example.com/v1; expected"),
        (with(v1("a"), "/kind", json!("Pod")), "objects[0]: Pod default/a is in"),
        (with(v1("a"), "/kind", json!({})), "kind is not a string"),
        (with(v1("a"), "/metadata", json!("x")), "metadata is not a JSON object"),
        (with(v1("a"), "/metadata/name", json!(1)), "metadata.name is not a string"),
    ];
    for (object, expected) in cases {
        let message = failure(&converter(), "bad_request", V2, json!([object])).await;
        assert!(message.contains(expected), "{object}: {message}");
    }
    for desired in ["stable.example.com/v9", "v2", ""] {
        assert_eq!(
            failure(&converter(), "bad_request", desired, json!([v1("a")])).await,
            format!(
                "desiredAPIVersion: cannot convert to {desired:?}; expected one of stable.example.com/v2, \
                 stable.example.com/v1"
            )
        );
    }
}

#[tokio::test]
async fn requests_without_envelope_or_uid_are_rejected() {
    let envelope = |request: &str| envelope(&Value::Null).replace("null", request);
    let with_uid = |uid: &str| envelope(&format!(r#"{{{uid},"desiredAPIVersion":"a/v1"}}"#));
    let of_type =
        |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind}).to_string();
    let cases = [
        (String::new(), "empty"),
        ("{".to_owned(), "EOF"),
        ("\u{feff}{}".to_owned(), "expected value"),
        ("[]".to_owned(), "found apiVersion"),
        (of_type("apiextensions.k8s.io/v1beta1", "ConversionReview"), "v1beta1"),
        (of_type("admission.k8s.io/v1", "AdmissionReview"), "AdmissionReview"),
        (of_type("apiextensions.k8s.io/v1", "ConversionReview"), "no request"),
        (envelope("null"), "no request"),
        (envelope("7"), "no uid"),
        (envelope("{}"), "no uid"),
        (with_uid(r#""uid":"""#), "no uid"),
        (with_uid(r#""uid":7"#), "no uid"),
        (with_uid(r#""uid":null"#), "no uid"),
        (with_uid(r#""uid":"a","uid":"b""#), "no uid"),
        (envelope("{}").replace(r#""request""#, r#""kind":"ConversionReview","request""#), "duplicate field"),
        ("[".repeat(100_000), ""),
    ];
    for (body, expected) in cases {
        let (status, error) = send(router(&converter()), "", body.clone()).await;
        assert_eq!(status, 400, "{body}: {error}");
        assert!(error["message"].as_str().unwrap().contains(expected), "{body}: {error}");
    }
}

#[tokio::test]
async fn malformed_requests_with_a_uid_get_a_review() {
    let whole = review(V2, json!([v1("a")]));
    let cases = [
        (whole.replace("desiredAPIVersion", "desired"), "missing field `desiredAPIVersion`"),
        (review(V2, json!("x")), "objects is not a list"),
        (whole.replace("\"spec\"", "\"kind\":\"CronTab\",\"spec\""), "kind is there twice"),
        (whole.replace("\"name\"", "\"name\":\"b\",\"name\""), "name is there twice"),
        (
            whole.replace("\"spec\"", &format!("{}\"spec\"", "\"\":0,".repeat(600_000))),
            "more than 524288 members",
        ),
    ];
    for (body, expected) in cases {
        let (outcome, response) = ask(&converter(), body).await;
        assert_eq!(outcome, "bad_request", "{response}");
        let message = response["result"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[tokio::test]
async fn many_members_are_converted() {
    let mut object = v1("a");
    for number in 0..10_000 {
        object[format!("member-{number}")] = json!(number);
    }
    let (outcome, _) = ask(&converter(), review(V2, json!([object]))).await;
    assert_eq!(outcome, "converted");
}

#[tokio::test]
async fn a_request_above_the_limit_is_refused() {
    let router = router(&converter()).with_conversion_limit(100);
    assert_eq!(send(router, "", review(V2, json!([v1("a")]))).await.0, 413);
}

#[tokio::test]
async fn caller_text_is_truncated_in_the_log_only() {
    let log = Written::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let _another = another_subscriber();
    let _guard = tracing::subscriber::set_default(subscriber);
    // Larger requests are handled on another thread, without the subscriber.
    let long = "u".repeat(1 << 14);
    let object = with(v1("a"), "/metadata/name", json!(long));
    for request in [
        json!({"uid": long, "desiredAPIVersion": long, "objects": []}),
        json!({"uid": long, "objects": []}),
        json!({"uid": long, "desiredAPIVersion": V2, "objects": [with(object, "/kind", json!(long))]}),
    ] {
        let (_, answer) = send(router(&converter()), "", envelope(&request)).await;
        assert_eq!(answer["response"]["uid"], *long);
        let logged = log.text();
        assert!((100..1200).contains(&logged.len()), "{logged}");
    }
}

/// Renames a field of the specification. An absent field stays absent, and other fields are kept.
fn renamed(mut object: Value, from: &str, to: &str) -> Value {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(value) = spec.remove(from)
    {
        spec.insert(to.to_owned(), value);
    }
    object
}

#[test]
fn the_documented_conversion_is_lossless() {
    let version = |name: &str, size: &str| {
        let spec = json!({"type": "object", "properties": {
            size: {"type": "integer", "format": "int32"},
            "image": {"type": "string"},
            "nested": {"type": "object", "properties": {"size": {"type": "string"}}},
        }});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({"name": name, "served": true, "storage": name == "v2", "schema": {"openAPIV3Schema": schema}})
    };
    let definition = serde_json::from_value(json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing", "plural": "things"},
            "scope": "Namespaced",
            "versions": [version("v1", "size"), version("v2", "replicas")],
        },
    }))
    .unwrap();
    let up = |v1: Value| renamed(v1, "size", "replicas");
    let down = |v2: Value| renamed(v2, "replicas", "size");
    let converter = Converter::dynamic("example.com", "Thing", "v2")
        .spoke_dynamic("v1", up, down)
        .build(&definition)
        .unwrap();
    round_trip::crd(&converter, &definition).unwrap();
    round_trip::partial(&converter, &definition).unwrap();
    let bare = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}});
    assert_eq!(converter.convert_object(&bare, "v2").unwrap().get("spec"), None);
}

#[tokio::test]
async fn nesting_and_escapes_in_undecoded_parts_are_harmless() {
    let whole = review(V2, json!([v1("a")]));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let extra = format!(r#""unknown":{deep},"spec""#);
    let (outcome, _) = ask(&converter(), whole.replace("\"spec\"", &extra)).await;
    assert_eq!(outcome, "converted");
    let escaped = whole.replace("\"metadata\"", r#""m\u0065tadata""#).replace("cron:1", "\u{2028}<é");
    let (outcome, response) = ask(&converter(), escaped).await;
    assert_eq!(outcome, "converted", "{response}");
    assert_eq!(response["convertedObjects"][0]["metadata"], v1("a")["metadata"]);
    assert_eq!(response["convertedObjects"][0]["spec"]["image"], "\u{2028}<é");
}

fn changing(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Converter {
    let to_hub = move |mut object: Value| {
        change(&mut object);
        object
    };
    Converter::dynamic("stable.example.com", "CronTab", "v2")
        .spoke_dynamic("v1", to_hub, |object: Value| object)
        .build_for(["v1", "v2"])
        .unwrap()
}

#[tokio::test]
async fn metadata_except_labels_and_annotations_is_restored() {
    let mut original = v1("a");
    original["metadata"]["labels"] = json!({"kept": "", "gone": "1"});
    original["metadata"]["annotations"] = json!({"gone": "1"});
    original["metadata"]["finalizers"] = json!(["example.com/f"]);
    original["metadata"]["managedFields"] = json!([{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]);
    let converter = changing(|object| {
        let metadata = &mut object["metadata"];
        assert!(metadata.get("managedFields").is_none(), "nobody needs them");
        metadata["labels"] = json!({"kept": "", "new": "2"});
        metadata.as_object_mut().unwrap().remove("annotations");
        metadata.as_object_mut().unwrap().remove("finalizers");
        metadata["generation"] = json!(8);
        metadata["ownerReferences"] = json!([]);
    });
    let mut expected = with(original.clone(), "/apiVersion", json!(V2));
    expected["metadata"]["labels"] = json!({"kept": "", "new": "2"});
    expected["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!(converted(&converter, V2, json!([original])).await, json!([expected]));
}

#[tokio::test]
async fn errors_name_the_field_that_the_api_server_rejects() {
    let text = |length: usize| json!("x".repeat(length));
    let cases = [
        (
            "/metadata/name",
            json!("b"),
            r#"metadata.name must stay as it is, and was changed from "a" to "b""#,
        ),
        (
            "/metadata/name",
            Value::Null,
            r#"metadata.name must stay as it is, and was changed from "a" to """#,
        ),
        (
            "/metadata/namespace",
            json!("b"),
            r#"metadata.namespace must stay as it is, and was changed from "default""#,
        ),
        ("/metadata/uid", json!("b"), "metadata.uid must stay as it is"),
        ("/kind", json!("Tab"), r#"kind must stay CronTab, and was changed to "Tab""#),
        ("/metadata", Value::Null, "metadata must be handed on, and is missing"),
        ("/metadata", json!(1), "metadata is not a JSON object"),
        (
            "/metadata/labels",
            json!({"a b": "c"}),
            r#"metadata.labels has the key "a b", which is not a qualified name"#,
        ),
        ("/metadata/labels", json!({"Example.com/a": "c"}), "not a qualified name"),
        ("/metadata/labels", json!({"a": "b c"}), r#"metadata.labels has the value "b c" at "a""#),
        ("/metadata/labels", json!({"a": text(64)}), "expected at most 63"),
        ("/metadata/labels", json!({"a": 1}), "metadata.labels must map texts to texts"),
        ("/metadata/labels", json!(["a"]), "metadata.labels must map texts to texts"),
        ("/metadata/annotations", json!({"a/b/c": "d"}), r#"metadata.annotations has the key "a/b/c""#),
        ("/metadata/annotations", json!({"a": null}), "metadata.annotations must map texts to texts"),
        (
            "/metadata/annotations",
            json!({"big": text(262_140), "a": "x"}),
            "metadata.annotations: expected at most 262144 bytes in total, found 262145; the largest is \"big\"",
        ),
    ];
    for (pointer, value, expected) in cases {
        let set = value.clone();
        let converter = changing(move |object| *object = with(object.take(), pointer, set.clone()));
        let message = failure(&converter, "errored", V2, json!([v1("a")])).await;
        assert!(
            message.starts_with("objects[0]: failed to convert CronTab default/a from v1 to v2: "),
            "{message}"
        );
        assert!(message.contains(expected), "{pointer}: {message}");
    }
    let accepted = [
        ("/metadata/labels", json!({"a": "", "example.com/B": "1.2-3_4"})),
        ("/metadata/labels", json!({})),
        ("/metadata/labels", Value::Null),
        ("/metadata/annotations", json!({"Example.com/A": "any text\n"})),
        ("/metadata/annotations", json!({"big": text(262_140), "a": ""})),
    ];
    for (pointer, value) in accepted {
        let set = value.clone();
        let converter = changing(move |object| *object = with(object.take(), pointer, set.clone()));
        let answer = converted(&converter, V2, json!([v1("a")])).await;
        assert_eq!(answer[0].pointer(pointer).unwrap_or(&Value::Null), &value);
    }
}

#[tokio::test]
async fn existing_invalid_labels_may_stay() {
    let original = with(v1("a"), "/metadata/labels", json!({"a b": "c d", "x": "y"}));
    let reordered = r#"{"x": "y", "a b": "c d"}"#;
    let text = original.to_string().replace(r#"{"a b":"c d","x":"y"}"#, reordered);
    let body = review(V2, json!(["here"])).replace("\"here\"", &text);
    assert!(body.contains(reordered));
    let (outcome, response) = ask(&converter(), body).await;
    assert_eq!(outcome, "converted", "{response}");
}

#[tokio::test]
async fn objects_without_a_name_or_metadata_are_converted() {
    let converter = changing(|object| assert_eq!(object["apiVersion"], V1));
    let mut nameless = v1("a");
    nameless["metadata"] = json!({"generateName": "tab-", "namespace": "default"});
    for metadata in [nameless["metadata"].clone(), json!({}), Value::Null] {
        let object = with(v1("a"), "/metadata", metadata.clone());
        let answer = converted(&converter, V2, json!([object])).await;
        assert_eq!(answer[0]["metadata"], if metadata.is_null() { json!({}) } else { metadata });
    }
    nameless["spec"] = json!({});
    let message = failure(&self::converter(), "errored", V2, json!([nameless])).await;
    assert!(message.contains("CronTab default/tab-* from v1"), "{message}");
}

#[tokio::test]
async fn a_panic_yields_a_response_and_the_next_request_succeeds() {
    let converter = changing(|object| assert_ne!(object["metadata"]["name"], "bad", "secret"));
    for _ in 0..2 {
        assert_eq!(
            failure(&converter, "panicked", V2, json!([v1("a"), v1("bad")])).await,
            "objects[1]: failed to convert CronTab default/bad from v1 to v2: the conversion function panicked"
        );
        assert_eq!(converted(&converter, V2, json!([v1("a")])).await[0]["apiVersion"], V2);
    }
}

#[tokio::test]
async fn a_timeout_reports_the_progress() {
    let converter = changing(|_| std::thread::sleep(Duration::from_millis(40)));
    let body = review(V2, json!((0..50).map(|i| v1(&i.to_string())).collect::<Vec<_>>()));
    // The deadline is at half of a short timeout.
    let (outcome, response) = ask_within(&converter, "?timeout=200ms", body).await;
    assert_eq!(outcome, "timed_out");
    let message = response["result"]["message"].as_str().unwrap();
    let (object, problem) = message.split_once("]: ").unwrap();
    assert_eq!(problem, "the time was over before it was converted");
    assert!(object.strip_prefix("objects[").unwrap().parse::<u8>().unwrap() < 50, "{message}");
}

#[tokio::test]
async fn a_long_batch_yields_to_other_tasks() {
    let converter = changing(|_| std::thread::sleep(Duration::from_millis(1)));
    let body = review(V2, json!((0..100).map(|i| v1(&i.to_string())).collect::<Vec<_>>()));
    let others = tokio::spawn(async {
        let mut turns = 0;
        loop {
            tokio::task::yield_now().await;
            turns += 1;
            if turns == 10 {
                return Instant::now();
            }
        }
    });
    assert_eq!(send(router(&converter), "?timeout=20s", body).await.0, 200);
    let end = Instant::now();
    assert!(others.await.unwrap() < end, "the batch kept the only worker to itself");
}

#[tokio::test]
async fn spokes_convert_through_the_hub_and_errors_name_the_step() {
    let v3_to_v2 = |mut object: Value| -> Result<CronTabV2, BoxError> {
        let image = object["spec"]["container"]["image"].take();
        object["spec"]["image"] = image;
        Ok(serde_json::from_value(object)?)
    };
    let v2_to_v3 = |object: CronTabV2| -> Result<Value, BoxError> {
        let mut object = serde_json::to_value(object)?;
        if object["spec"]["image"] == "unknown" {
            return Err("no such image".into());
        }
        let image = object["spec"].as_object_mut().and_then(|spec| spec.remove("image"));
        object["spec"]["container"] = json!({"image": image});
        Ok(object)
    };
    let converter = builder().spoke_dynamic("v3", v3_to_v2, v2_to_v3).build_for(["v1", "v2", "v3"]).unwrap();
    assert_eq!(format!("{converter:?}"), "Converter(CronTab.stable.example.com: v2, v1, v3)");
    let v3 = converter.convert_object(&v1("a"), "v3").unwrap();
    assert_eq!(v3["apiVersion"], "stable.example.com/v3");
    assert_eq!(v3["spec"]["container"]["image"], "cron:1");
    assert_eq!(converter.convert_object(&v3, "v1").unwrap(), v1("a"));
    for (object, expected) in [
        (
            with(v1("a"), "/spec/cronSpec", json!("*")),
            "from v1 to v3: from v1 to the hub v2: spec.cronSpec: expected 5 fields, found 1",
        ),
        (
            with(v1("a"), "/spec/image", json!("unknown")),
            "from v1 to v3: from the hub v2 to v3: no such image",
        ),
    ] {
        let message = converter.convert_object(&object, "v3").unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let message = converter.convert_object(&v1("a"), "v4").unwrap_err().to_string();
    assert!(message.starts_with("cannot convert to \"stable.example.com/v4\"; expected one of"), "{message}");
}

#[test]
fn an_untyped_hub_has_its_own_version() {
    let converter = Converter::dynamic("stable.example.com", "CronTab", "v2")
        .spoke_dynamic("v1", |object: Value| object, |object: Value| object)
        .spoke_dynamic(
            "v3",
            |object: Value| object,
            |object: Value| {
                assert_eq!(object["apiVersion"], V2);
                object
            },
        )
        .build_for(["v1", "v3"])
        .unwrap();
    let expected = with(v1("a"), "/apiVersion", json!("stable.example.com/v3"));
    assert_eq!(converter.convert_object(&v1("a"), "v3").unwrap(), expected);
}

#[test]
fn converters_are_checked_against_the_definition() {
    let edit = |pointer: &str, value: Value| {
        let edited = with(serde_json::to_value(definition()).unwrap(), pointer, value);
        serde_json::from_value(edited).unwrap()
    };
    let version =
        |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage});
    let cases = [
        (
            edit(
                "/spec/versions",
                json!([version("v1", true, false), version("v3", true, true), version("v4", true, false)]),
            ),
            "no conversion is registered for v3, v4 of CronTab.stable.example.com; registered are v2, v1 (the first is \
             the hub)",
        ),
        (edit("/spec/versions", json!([version("v0", false, true)])), "no conversion is registered for v0"),
        (
            edit("/status", json!({"storedVersions": ["v2", "v1beta1"]})),
            "no conversion is registered for v1beta1",
        ),
        (
            edit("/spec/group", json!("other.example.com")),
            "is of CronTab.other.example.com, the converter of",
        ),
        (
            edit("/spec/names/kind", json!("Tab")),
            "is of Tab.stable.example.com, the converter of CronTab.stable",
        ),
        (edit("/spec/conversion", json!({"strategy": "None"})), "spec.conversion.strategy \"None\""),
        (edit("/spec/conversion/webhook/conversionReviewVersions", json!(["v1beta1", "v1"])), "v1beta1, v1"),
    ];
    for (definition, expected) in cases {
        let error = builder().build(&definition).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    for accepted in [
        edit("/spec/versions", json!([version("v2", true, true)])),
        edit("/spec/versions", json!([version("v1", true, true), version("v9", false, false)])),
        edit("/spec/conversion", Value::Null),
        edit("/spec/conversion/webhook/conversionReviewVersions", json!(["v7", "v1", "v1beta1"])),
    ] {
        builder().build(&accepted).unwrap();
    }
}

#[test]
fn inconsistent_versions_are_rejected() {
    let twice = builder().spoke_dynamic("v1", |_: Value| -> CronTabV2 { unreachable!() }, |_| Value::Null);
    let error = twice.build_for(["v1"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "v1 of CronTab.stable.example.com is registered twice; registered are v2, v1, v1"
    );
    let other = Converter::dynamic("stable.example.com", "Tab", "v2").spoke::<CronTabV1>(
        |_: CronTabV1| Value::Null,
        |_: Value| Err::<CronTabV1, BoxError>("never".into()),
    );
    let error = other.build_for(["v2"]).unwrap_err().to_string();
    assert_eq!(
        error,
        "the spoke CronTab.stable.example.com in v1 is not of the hub's Tab.stable.example.com"
    );
}

#[test]
fn conversion_functions_may_be_closures_and_may_fail() {
    let converters = [
        Converter::hub::<CronTabV2>().spoke::<CronTabV1>(
            |mut v1| {
                v1.spec.replicas.take();
                v1_to_v2(v1)
            },
            |mut v2| {
                v2.spec.replicas.take();
                v2_to_v1(v2)
            },
        ),
        Converter::hub::<CronTabV2>().spoke(v1_to_v2, v2_to_v1),
        Converter::hub::<CronTabV2>().spoke::<CronTabV1>(v1_to_v2, |v2| Ok::<_, Infallible>(v2_to_v1(v2))),
    ];
    for converter in converters {
        assert!(converter.build_for(["v1", "v2"]).is_ok());
    }
}

/// The definition's converter with another conversion from v2 to v1.
fn seeded(v2_to_v1: impl Fn(CronTabV2) -> CronTabV1 + Send + Sync + 'static) -> Converter {
    Converter::hub::<CronTabV2>().spoke::<CronTabV1>(v1_to_v2, v2_to_v1).build(&definition()).unwrap()
}

#[test]
fn a_conversion_with_an_annotation_round_trips() {
    round_trip::crd(&converter(), &definition()).unwrap();
}

#[test]
fn only_lost_fields_are_reported() {
    let converter = seeded(|v2| {
        let mut v1 = v2_to_v1(v2);
        v1.metadata.annotations = v1.metadata.annotations.map(|mut annotations| {
            annotations.retain(|key, _| key != "stable.example.com/time-zone");
            annotations
        });
        v1
    });
    let error = round_trip::crd(&converter, &definition()).unwrap_err();
    let RoundTripError::Differs { way, differences, object, .. } = &error else { panic!("{error}") };
    assert_eq!(way, "v2 -> v1 -> v2");
    assert_eq!(differences.len(), 1);
    assert_eq!(differences[0].path, "spec.timeZone");
    assert!(error.to_string().contains("spec.timeZone: \"\" was lost"), "{error}");
    assert_eq!(object["spec"].as_object().unwrap().len(), 3, "image and schedule are required: {object}");
    assert_eq!(format!("{error:?}"), error.to_string());
}

#[test]
fn a_number_converted_to_text_is_reported() {
    let text = |mut object: Value| {
        if let Some(replicas) = object["spec"]["replicas"].as_i64() {
            object["spec"]["replicas"] = json!(replicas.to_string());
        }
        object
    };
    let converter = Converter::dynamic("stable.example.com", "CronTab", "v2")
        .spoke_dynamic("v1", |object: Value| object, text)
        .build_for(["v1", "v2"])
        .unwrap();
    let error = round_trip::crd(&converter, &definition()).unwrap_err().to_string();
    assert!(error.contains("spec.replicas: 0 became \"0\""), "{error}");
}

#[test]
fn round_trips_find_valid_objects_that_do_not_convert() {
    let mut definition = definition();
    let schema = definition.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
    let spec = schema.properties.as_mut().unwrap().get_mut("spec").unwrap();
    spec.properties.as_mut().unwrap().get_mut("cronSpec").unwrap().pattern = None;
    let error = round_trip::crd(&converter(), &definition).unwrap_err().to_string();
    assert!(error.starts_with("v1 -> v2 -> v1 fails: failed to convert CronTab "), "{error}");
    assert!(
        error.contains("spec.cronSpec: expected 5 fields, found 0: \"\"\nsmallest object found: {"),
        "{error}"
    );
}

#[test]
fn custom_strategies_may_be_typed() {
    let object: CronTabV1 = serde_json::from_value(v1("a")).unwrap();
    let objects = (Just(object), "[a-z]{1,9}").prop_map(|(mut object, image)| {
        object.spec.image = image;
        object
    });
    round_trip::spoke_hub_spoke(&converter(), "v1", objects.clone()).unwrap();
    let converter = seeded(|v2| {
        let mut v1 = v2_to_v1(v2);
        v1.spec.image.truncate(3);
        v1
    });
    let error = round_trip::spoke_hub_spoke(&converter, "v1", objects).unwrap_err().to_string();
    assert!(error.contains("spec.image: \"aaaa\" became \"aaa\""), "{error}");
}

#[test]
fn partial_objects_find_conversions_that_need_every_field() {
    let error = round_trip::partial(&converter(), &definition()).unwrap_err().to_string();
    assert!(
        error.starts_with("v1 -> v2 fails: failed to convert CronTab (no name) from v1 to v2"),
        "{error}"
    );
    assert!(error.contains("spec: missing field `"), "{error}");
    let lenient = changing(|object| {
        let spec = object.as_object_mut().unwrap().entry("spec").or_insert_with(|| json!({}));
        spec.as_object_mut().unwrap().remove("cronSpec");
    });
    round_trip::partial(&lenient, &definition()).unwrap();
}

#[test]
fn objects_without_the_spec_that_a_type_requires_are_converted() {
    let definition = widget::definition();
    let lenient = widget::builder().build(&definition).unwrap();
    round_trip::partial(&lenient, &definition).unwrap();
    let strict = widget::strict().build(&definition).unwrap();
    let object = |version: &str| {
        json!({"apiVersion": format!("widgets.example.com/{version}"), "kind": "Widget",
            "metadata": {"name": "a", "labels": {"a": "b"}, "managedFields": [{"manager": "m"}]}, "more": 1})
    };
    let mut only_metadata = object("v2");
    only_metadata.as_object_mut().unwrap().remove("more");
    assert_eq!(lenient.convert_object(&object("v1"), "v2").unwrap(), only_metadata);
    assert_eq!(strict.convert_object(&object("v1"), "v2").unwrap(), object("v2"), "only the version changes");
    // An incomplete spec is an error; only an absent spec is replaced.
    let error = strict.convert_object(&with(object("v1"), "/spec", json!({})), "v2").unwrap_err();
    assert!(error.to_string().contains("it does not decode as v1: spec: missing field `image`"), "{error}");
}

#[test]
fn the_example_converts_whole_objects_and_parts_of_them() {
    let definition = example::definition().unwrap();
    round_trip::crd(&example::converter().unwrap(), &definition).unwrap();
    round_trip::partial(&example::converter().unwrap(), &definition).unwrap();
}

#[test]
fn the_example_joins_host_and_port() {
    let converter = example::converter().unwrap();
    let object = |version: &str, spec: Value| {
        let api_version = format!("example.com/{version}");
        json!({"apiVersion": api_version, "kind": "CronTab", "metadata": {"name": "a"}, "spec": spec})
    };
    for (host_port, host, port) in [("localhost:1234", "localhost", "1234"), ("[::1]:80", "[::1]", "80")] {
        let v1 = object("v1", json!({"hostPort": host_port, "image": "cron:1"}));
        let v2 = object("v2", json!({"host": host, "port": port, "image": "cron:1"}));
        assert_eq!(converter.convert_object(&v1, "v2").unwrap(), v2);
        assert_eq!(converter.convert_object(&v2, "v1").unwrap(), v1);
    }
    let error = converter.convert_object(&object("v1", json!({"hostPort": "localhost"})), "v2").unwrap_err();
    let error = error.to_string();
    assert!(error.contains("spec.hostPort: \"localhost\" is not HOST:PORT"), "{error}");
}
