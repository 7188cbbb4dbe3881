//! For any input, the response is one that the API server accepts, or a 4xx.

use std::convert::Infallible;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lucid_webhook::registration::Rule;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Changed, Object, Operation, Router, Webhook};
use lucid_webhook_test::{ApiServer, RejectedBy, Review};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tower::{ServiceExt, service_fn};

use crate::common::things;
use crate::server_under_test::TestServer;

const PATHS: [&str; 3] = ["/validate", "/mutate", "/convert"];

const ADMISSION: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1",
"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
"name":"web","namespace":"shop","operation":"UPDATE","userInfo":{"username":"jane","extra":{"a":["b"]}},
"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}},"oldObject":{"kind":"Pod"},"dryRun":true,"options":null}}"#;

const CONVERSION: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u-1",
"desiredAPIVersion":"example.com/v2","objects":[{"apiVersion":"example.com/v1","kind":"Thing",
"metadata":{"name":"a","namespace":"shop","uid":"1","labels":{"a":"b"}},"spec":{"size":3}},
{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"name":"b"},"spec":{"size":4}}]}}"#;

fn review_at(path: &str) -> &'static str {
    if path == "/convert" { CONVERSION } else { ADMISSION }
}

fn router() -> Router {
    let validate = async |request: AdmissionRequest| {
        // The object may nest too deeply or contain numbers out of range, which is detected when it is decoded.
        if let Some(Err(error)) = request.object.map(|object| object.decode::<Value>()) {
            assert!(error.to_string().starts_with("failed to decode the object"), "{error}");
        }
        AdmissionResponse::allow()
    };
    async fn mutate(Object(mut object): Object<Value>) -> Changed<Value> {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("labels".to_owned(), json!({"seen": "true"}));
        }
        Changed::new(object)
    }
    Router::new()
        .webhook("/validate", Webhook::validating("v.example.com", validate))
        .webhook("/mutate", Webhook::mutating("m.example.com", mutate))
        .convert("/convert", things())
}

async fn post(path: &str, body: Vec<u8>) -> (u16, Bytes) {
    let request = Request::post(format!("{path}?timeout=10s")).header("content-type", "application/json");
    let answer = router().oneshot(request.body(Full::new(body.into())).unwrap()).await.unwrap();
    (answer.status().as_u16(), answer.into_body().collect().await.unwrap().to_bytes())
}

#[derive(serde::Deserialize)]
struct Envelope {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    #[serde(rename = "request")]
    _request: Asked,
}

#[derive(serde::Deserialize)]
struct Asked {
    #[serde(rename = "uid")]
    _uid: IgnoredAny,
}

async fn assert_acceptable(path: &'static str, body: Vec<u8>, (status, answer): (u16, Bytes)) {
    let shown = format!("{path}: {}: {status} {answer:?}", String::from_utf8_lossy(&body));
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let original: Value = serde_json::from_str(review_at(path)).unwrap();
    let is_review = ["apiVersion", "kind"].iter().all(|field| asked[*field] == original[*field]);
    let uid = asked["request"]["uid"].as_str().filter(|uid| is_review && !uid.is_empty());
    let refused = (400..500).contains(&status);
    // A duplicate member is rejected, or one of the two is used.
    let is_ambiguous = serde_json::from_slice::<Envelope>(&body).is_err();
    let Some(uid) = uid.filter(|_| !(is_ambiguous && refused)) else {
        // Errors inside of the objects are detected when these are decoded.
        let is_json = serde_json::from_slice::<Value>(&body).is_ok();
        assert!(refused || (!is_json && path != "/convert" && is_answered(&answer)), "{shown}");
        return;
    };
    assert_eq!(status, 200, "{shown}");
    if path == "/convert" {
        assert_converted(uid, &asked["request"], &answer, &shown);
    } else {
        assert_admitted(path, uid, &asked["request"]["object"], answer, &shown).await;
    }
}

fn is_answered(answer: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(answer).unwrap();
    answer["kind"] == "AdmissionReview"
        && answer["response"]["uid"].as_str().is_some_and(|uid| !uid.is_empty())
        && answer["response"]["allowed"].is_boolean()
}

async fn assert_admitted(path: &str, uid: &str, object: &Value, answer: Bytes, shown: &str) {
    let mut object = if object.is_object() { object.clone() } else { json!({}) };
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Pod");
    let has_metadata = object["metadata"].is_object();
    if !has_metadata {
        object["metadata"] = json!({});
    }
    let api_server = ApiServer::in_process(service_fn(move |_: Request<Full<Bytes>>| {
        let answer =
            Response::builder().header("content-type", "application/json").body(Full::new(answer.clone()));
        async move { Ok::<_, Infallible>(answer.unwrap()) }
    }));
    let webhook = match path {
        "/mutate" => Webhook::mutating("m.example.com", async || AdmissionResponse::allow()),
        _ => Webhook::validating("v.example.com", async || AdmissionResponse::allow()),
    };
    let webhook = webhook.with_registration(|registration| {
        registration.with_rule(Rule::new("*", ["*"], ["*"], [Operation::Create])).with_kube_system()
    });
    let api_server = api_server.with_webhooks(&Router::new().webhook(path, webhook));
    let outcome = api_server.review(&Review::create(&object).uid(uid)).await;
    outcome.assert_nothing_dropped();
    match outcome.result {
        Ok(admitted) => {
            if path == "/mutate" && has_metadata {
                object["metadata"]["labels"] = json!({"seen": "true"});
            }
            assert_eq!(admitted, object, "{shown}");
        }
        Err(rejection) => {
            assert_eq!((rejection.by, rejection.code), (RejectedBy::Webhook, 400), "{shown}");
        }
    }
}

fn assert_converted(uid: &str, request: &Value, answer: &[u8], shown: &str) {
    let answer: Value = serde_json::from_slice(answer).unwrap();
    assert_eq!(answer["kind"], "ConversionReview", "{shown}");
    assert_eq!(answer["response"]["uid"], uid, "{shown}");
    match answer["response"]["result"]["status"].as_str() {
        Some("Success") => {
            let converted = answer["response"]["convertedObjects"].as_array().unwrap();
            // As in Go, absent and null are empty lists.
            let objects = request["objects"].as_array().map_or(&[][..], Vec::as_slice);
            assert_eq!(converted.len(), objects.len(), "{shown}");
            for (object, converted) in objects.iter().zip(converted) {
                for field in ["name", "namespace", "uid", "creationTimestamp"] {
                    assert_eq!(converted["metadata"][field], object["metadata"][field], "{shown}");
                }
                let (mut expected, mut converted) = (object.clone(), converted.clone());
                expected["apiVersion"] = request["desiredAPIVersion"].clone();
                // Equivalent values may be written differently, such as empty ones as absent.
                for object in [&mut expected, &mut converted] {
                    object.as_object_mut().unwrap().remove("metadata");
                }
                assert_eq!(converted, expected, "{shown}");
            }
        }
        Some("Failure") => {
            let message = answer["response"]["result"]["message"].as_str();
            assert!(
                message.is_some_and(|message| !message.is_empty() && !message.contains("panic")),
                "{shown}"
            );
        }
        _ => panic!("{shown}"),
    }
}

/// Runs each case in a separate task, so that a hanging one is detected.
fn check(path: &'static str, body: Vec<u8>) {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    });
    let shown = String::from_utf8_lossy(&body).into_owned();
    let case = RUNTIME.spawn(async move {
        let answer = post(path, body.clone()).await;
        assert_acceptable(path, body, answer).await;
    });
    let ended = RUNTIME.block_on(async { tokio::time::timeout(Duration::from_mins(1), case).await });
    ended.unwrap_or_else(|_| panic!("{path} hangs on {shown}")).unwrap();
}

fn path() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&PATHS[..])
}

fn with_bytes_replaced() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let edits = vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8);
    (path(), edits).prop_map(|(path, edits)| {
        let mut body = review_at(path).as_bytes().to_vec();
        for (at, byte) in edits {
            let at = at.index(body.len());
            body[at] = byte;
        }
        (path, body)
    })
}

fn with_a_value_replaced() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!({"": [null]})),
    ];
    (path(), any::<proptest::sample::Index>(), leaf).prop_map(|(path, at, value)| {
        let mut review: Value = serde_json::from_str(review_at(path)).unwrap();
        let mut pointers = Vec::new();
        pointers_into(&review, String::new(), &mut pointers);
        let at = &pointers[at.index(pointers.len())];
        *review.pointer_mut(at).unwrap() = value;
        (path, review.to_string().into_bytes())
    })
}

fn pointers_into(value: &Value, at: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| pointers_into(value, format!("{at}/{key}"), pointers));
        }
        Value::Array(elements) => {
            let elements = elements.iter().enumerate();
            elements.for_each(|(index, value)| pointers_into(value, format!("{at}/{index}"), pointers));
        }
        _ => {}
    }
    pointers.push(at);
}

fn cut_and_joined() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let index = any::<proptest::sample::Index>;
    (path(), index(), index()).prop_map(|(path, cut, from)| {
        let review = review_at(path).as_bytes();
        (path, [&review[..cut.index(review.len())], &review[from.index(review.len())..]].concat())
    })
}

proptest! {
    #[test]
    fn arbitrary_bytes_get_a_valid_response(path in path(), body in vec(any::<u8>(), 0..2048)) {
        check(path, body);
    }

    #[test]
    fn reviews_with_replaced_bytes_get_a_valid_response((path, body) in with_bytes_replaced()) {
        check(path, body);
    }

    #[test]
    fn reviews_with_a_replaced_value_get_a_valid_response((path, body) in with_a_value_replaced()) {
        check(path, body);
    }

    #[test]
    fn spliced_reviews_get_a_valid_response((path, body) in cut_and_joined()) {
        check(path, body);
    }
}

#[tokio::test]
async fn hostile_requests_over_tls_get_valid_responses() {
    let server = TestServer::start(router()).await;
    let client = server.client();
    let mut runner = TestRunner::deterministic();
    let hostile = prop_oneof![
        (path(), vec(any::<u8>(), 0..2048)),
        with_bytes_replaced(),
        with_a_value_replaced(),
        cut_and_joined()
    ];
    for _ in 0..400 {
        let (path, body) = hostile.new_tree(&mut runner).unwrap().current();
        let request = client.post(server.url(path)).header("content-type", "application/json");
        let answer = async {
            let answer = request.body(body.clone()).send().await.unwrap();
            (answer.status().as_u16(), answer.bytes().await.unwrap())
        };
        let answer = tokio::time::timeout(Duration::from_mins(1), answer).await;
        let answer = answer.unwrap_or_else(|_| panic!("{path} hangs on {}", String::from_utf8_lossy(&body)));
        assert_acceptable(path, body, answer).await;
    }
}

#[tokio::test]
async fn unmodified_reviews_succeed() {
    for path in PATHS {
        let (status, answer) = post(path, review_at(path).into()).await;
        assert_eq!(status, 200, "{path}");
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let response = &answer["response"];
        assert!(response["allowed"] == true || response["result"]["status"] == "Success", "{answer}");
        assert_eq!(response.get("patch").is_some(), path == "/mutate", "{answer}");
    }
}
