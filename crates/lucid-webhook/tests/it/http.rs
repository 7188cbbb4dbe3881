//! Responses over TLS, above all to malformed requests.

use std::future::pending;

use lucid_e2e::eventually;
use lucid_webhook::{AdmissionRequest, AdmissionResponse, BoxError, Router, Webhook};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::common::{assert_counted, exposed, patch, post, review, things};
use crate::server_under_test::TestServer;

fn create() -> Value {
    review(json!({
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "web", "namespace": "shop", "operation": "CREATE", "dryRun": false,
        "userInfo": {"username": "jane", "groups": ["dev"], "extra": {"scopes": ["a"]}},
        "object": {"kind": "Pod", "metadata": {"name": "web"}}, "oldObject": null,
    }))
}

fn router() -> Router {
    let allow = async |request: AdmissionRequest| {
        let object = request.object.map_or(0, |object| object.as_bytes().len());
        let seen = format!("{} {} {object}", request.operation.as_str(), request.user_info.username);
        AdmissionResponse::allow().with_warning(seen)
    };
    let deny = async || AdmissionResponse::deny(200, "Forbidden", "no\nway");
    let label = async || patch(&json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]));
    let in_vain = async || patch(&json!([{"op": "remove", "path": "/spec/nothing"}]));
    let fail = async || Err::<AdmissionResponse, BoxError>("the disk is full".into());
    let panic = async |request: AdmissionRequest| {
        assert!(request.uid.is_empty(), "on purpose");
        AdmissionResponse::allow()
    };
    Router::new()
        .webhook("/allow", Webhook::validating("allow.example.com", allow))
        .webhook("/deny", Webhook::validating("deny.example.com", deny))
        .webhook("/patch", Webhook::mutating("patch.example.com", label))
        .webhook("/patch-in-vain", Webhook::mutating("patch-in-vain.example.com", in_vain))
        .webhook("/validate-with-patch", Webhook::validating("validate-with-patch.example.com", label))
        .webhook("/fail", Webhook::validating("fail.example.com", fail))
        .webhook("/panic", Webhook::validating("panic.example.com", panic))
        .webhook("/hang", Webhook::validating("hang.example.com", pending::<AdmissionResponse>))
}

#[tokio::test]
async fn malformed_requests_get_a_status() {
    let server = TestServer::start(router()).await;
    let client = server.client();
    let text = |value: Value| value.to_string().into_bytes();
    let full = text(create());
    const JSON: &str = "application/json";
    let type_only = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind});
    let mut beta = create();
    beta["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let (half, twice) = (full[..full.len() / 2].to_vec(), full.repeat(2));
    let no_review = "not an AdmissionReview";
    let cases = [
        ("empty body", vec![], JSON, 400, "the body is empty"),
        ("wrong content type", full.clone(), "text/plain", 415, JSON),
        ("content type of YAML", full.clone(), "application/yaml", 415, JSON),
        ("content type with a charset", full, "Application/JSON; charset=utf-8", 200, "u-1"),
        ("truncated JSON", half, JSON, 400, no_review),
        ("not JSON", b"\xff\xfe\x00".to_vec(), JSON, 400, no_review),
        ("JSON of another shape", b"[1]".to_vec(), JSON, 400, no_review),
        ("two values", twice, JSON, 400, no_review),
        (
            "no request",
            text(type_only("admission.k8s.io/v1", "AdmissionReview")),
            JSON,
            400,
            "has no request",
        ),
        ("request null", text(review(Value::Null)), JSON, 400, "has no request"),
        ("request without uid", text(review(json!({"operation": "CREATE"}))), JSON, 400, "no uid"),
        ("empty uid", text(review(json!({"uid": "", "operation": "CREATE"}))), JSON, 400, "no uid"),
        ("request that is a list", text(review(json!([]))), JSON, 400, no_review),
        ("another kind", text(type_only("v1", "Pod")), JSON, 400, "kind \"Pod\""),
        ("another version", text(beta), JSON, 400, "expected admission.k8s.io/v1 AdmissionReview"),
        ("10 MB body", vec![b' '; 10_000_000], JSON, 413, "larger than"),
    ];
    for (name, body, content_type, status, says) in cases {
        let request = client.post(server.url("/allow")).header("content-type", content_type).body(body);
        let response = request.send().await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(response.status(), status, "{name}");
        assert_eq!(response.headers()["content-type"], "application/json", "{name}");
        let answer: Value = response.json().await.unwrap();
        if status == 200 {
            assert_eq!(answer["response"]["uid"], says, "{name}");
        } else {
            assert_refusal(&answer, status, says);
        }
    }
    let long = json!({"apiVersion": "v1", "kind": "x".repeat(6_000_000)}).to_string();
    let request = client.post(server.url("/allow")).header("content-type", "application/json").body(long);
    assert!(
        request.send().await.unwrap().text().await.unwrap().len() < 1000,
        "what was sent is not sent back whole"
    );
    let response = client.get(server.url("/allow")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["allow"]), (405, &"POST".parse().unwrap()));
    assert_refusal(&response.json().await.unwrap(), 405, "expected POST");
    let response = client.post(server.url("/other")).send().await.unwrap();
    assert_eq!(response.status(), 404);
    assert_refusal(&response.json().await.unwrap(), 404, "no webhook at /other");
}

/// Asserts that `answer` is a `metav1.Status`, whose message the API server shows.
#[track_caller]
pub(crate) fn assert_refusal(answer: &Value, code: u16, says: &str) {
    let reason = match code {
        400 => "BadRequest",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        429 => "TooManyRequests",
        _ => panic!("{code}"),
    };
    let message = answer["message"].as_str().unwrap_or_default();
    assert!(message.contains(says), "{answer}");
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    assert_eq!(*answer, expected);
}

#[tokio::test]
async fn a_valid_review_always_gets_200_and_its_uid() {
    let server = TestServer::start(router()).await;
    let client = server.client();
    let unknown_operation = review(json!({"uid": "u-1", "operation": "PATCH"}));
    let wrong_type = review(json!({"uid": "u-1", "operation": "CREATE", "dryRun": "yes"}));
    let delete =
        review(json!({"uid": "u-1", "operation": "DELETE", "object": null, "oldObject": {"kind": "Pod"}}));
    let nulls = review(
        json!({"uid": "u-1", "operation": "CREATE", "kind": null, "name": null, "namespace": null,
        "dryRun": null, "subResource": null, "userInfo": {"username": "jane", "groups": null, "extra": {"a": null}}}),
    );
    let unknown_field = {
        let mut review = create();
        review["request"]["fromTheFuture"] = json!({"a": 1});
        review
    };
    let cases = [
        ("/allow", create(), true, json!({"warnings": ["CREATE jane 40"]})),
        ("/allow", delete.clone(), true, json!({"warnings": ["DELETE  0"]})),
        ("/allow", unknown_field, true, json!({"warnings": ["CREATE jane 40"]})),
        ("/allow", nulls, true, json!({"warnings": ["CREATE jane 0"]})),
        (
            "/deny",
            create(),
            false,
            json!({"status": {"code": 400, "reason": "Forbidden", "message": "no\nway"}}),
        ),
        ("/patch", create(), true, json!({"patchType": "JSONPatch"})),
        ("/patch", delete, false, json!({"status": {"code": 500}})),
        ("/patch-in-vain", create(), false, json!({"status": {"code": 500}})),
        ("/validate-with-patch", create(), false, json!({"status": {"code": 500}})),
        ("/fail", create(), false, json!({"status": {"message": "the webhook failed: the disk is full"}})),
        ("/panic", create(), false, json!({"status": {"message": "the webhook panicked"}})),
        ("/hang?timeout=2s", create(), false, json!({"status": {"code": 504, "reason": "Timeout"}})),
        ("/allow", unknown_operation, false, json!({"status": {"code": 400}})),
        ("/allow", wrong_type, false, json!({"status": {"code": 400}})),
    ];
    for (path, body, allowed, holds) in cases {
        let response = client.post(server.url(path)).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1", "{path}");
        assert_eq!(answer["kind"], "AdmissionReview", "{path}");
        assert_eq!(answer["response"]["uid"], "u-1", "{path}");
        assert_eq!(answer["response"]["allowed"], allowed, "{path}: {answer}");
        assert!(contains(&answer["response"], &holds), "{path}: {answer} does not hold {holds}");
        assert_eq!(
            answer["response"].get("patch").is_some(),
            path == "/patch" && allowed,
            "{path}: {answer}"
        );
    }
}

fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|found| contains(found, value)))
        }
        _ => whole == part,
    }
}

#[tokio::test]
async fn metrics_distinguish_outcomes() {
    let mut registry = Registry::default();
    let server = TestServer::start(router().with_metrics(&mut registry)).await;
    let client = server.client();
    for path in ["/allow", "/deny", "/patch", "/fail", "/panic", "/hang?timeout=1s"] {
        client.post(server.url(path)).json(&create()).send().await.unwrap();
    }
    client.post(server.url("/allow")).body("nonsense").send().await.unwrap();
    for (webhook, operation, outcome) in [
        ("allow", "CREATE", "allowed"),
        ("deny", "CREATE", "denied"),
        ("patch", "CREATE", "patched"),
        ("fail", "CREATE", "errored"),
        ("panic", "CREATE", "panicked"),
        ("hang", "CREATE", "timed_out"),
        ("allow", "", "bad_request"),
    ] {
        let webhook = format!("webhook=\"{webhook}.example.com\"");
        let labels = format!("{webhook},operation=\"{operation}\",outcome=\"{outcome}\"");
        assert_counted(&registry, &format!("admission_requests_total{{{labels}"), 1);
    }
    assert_counted(&registry, "admission_requests_in_flight{webhook=\"allow.example.com\"", 0);
}

#[tokio::test]
async fn the_body_limit_is_exact() {
    const MIB: usize = 1024 * 1024;
    let server = TestServer::start(router().convert("/convert", things())).await;
    let conversion = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "u-1", "desiredAPIVersion": "example.com/v2", "objects": []},
    });
    for (path, review, limit) in
        [("/allow?timeout=30s", create(), 7 * MIB), ("/convert?timeout=30s", conversion, 64 * MIB)]
    {
        for (length, status) in [(limit, 200), (limit + 1, 413)] {
            let mut body = review.to_string().into_bytes();
            body.resize(length, b' ');
            let request = server.client().post(server.url(path)).header("content-type", "application/json");
            let answer = request.body(body).send().await.unwrap();
            assert_eq!(answer.status(), status, "{path} {length}");
            let answer: Value = answer.json().await.unwrap();
            match status {
                200 => assert_eq!(answer["response"]["uid"], "u-1", "{path}"),
                _ => assert_refusal(&answer, 413, &format!("larger than {limit} bytes")),
            }
        }
    }
}

#[tokio::test]
async fn duration_buckets_range_from_half_a_millisecond_to_30_s() {
    let mut registry = Registry::default();
    let _router = router().with_metrics(&mut registry);
    let text = exposed(&registry);
    let bounds: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("admission_request_duration_seconds_bucket{le=\""))
        .filter(|line| line.contains("webhook=\"allow.example.com\""))
        .filter_map(|line| line.split('"').next())
        .collect();
    let expected = [
        "0.0005", "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5",
        "5.0", "10.0", "30.0", "+Inf",
    ];
    assert_eq!(bounds, expected, "{text}");
}

#[tokio::test]
async fn calls_in_flight_are_counted_while_they_last() {
    const CALLS: usize = 7;
    let mut registry = Registry::default();
    let server = TestServer::start(router().with_metrics(&mut registry)).await;
    let in_flight = |calls: usize| {
        let line = format!("admission_requests_in_flight{{webhook=\"hang.example.com\"}} {calls}\n");
        exposed(&registry).contains(&line)
    };
    let becomes = async |calls| {
        let counted = async || if in_flight(calls) { Ok(()) } else { Err(exposed(&registry)) };
        eventually(&format!("{calls} calls in flight"), counted).await;
    };
    assert!(in_flight(0));
    let calls: Vec<_> = (0..CALLS)
        .map(|_| tokio::spawn(server.client().post(server.url("/hang?timeout=4s")).json(&create()).send()))
        .collect();
    becomes(CALLS).await;
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 200);
    }
    becomes(0).await;
}

#[tokio::test]
async fn requests_do_not_create_series() {
    let mut registry = Registry::default();
    let router = router().with_metrics(&mut registry);
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let before = exposed(&registry);
    for number in 0..50 {
        let odd = format!("x{number}\"}}\n\u{0}\u{1f980}");
        let mut review = create();
        let request = &mut review["request"];
        for field in ["uid", "name", "namespace", "subResource"] {
            request[field] = json!(odd);
        }
        request["userInfo"] = json!({"username": odd, "groups": [odd], "extra": {&odd: [odd]}});
        request["kind"] = json!({"group": odd, "version": odd, "kind": odd});
        request["resource"] = json!({"group": odd, "version": odd, "resource": odd});
        request["object"] = json!({"kind": odd, "metadata": {"name": odd, "labels": {&odd: odd}}});
        let mut unknown = review.clone();
        unknown["request"]["operation"] = json!(odd);
        for path in ["/allow", "/deny", "/patch", "/fail", "/panic", &format!("/{number}")] {
            for review in [&review, &unknown] {
                let (status, _, _) = post(&router, path, review).await;
                assert!(status == 200 || status == 404, "{status}");
            }
        }
    }
    let after = exposed(&registry);
    assert_ne!(before, after, "nothing was counted");
    assert_eq!(series(&before), series(&after), "{after}");
    assert!(!after.contains('\u{1f980}'));
}
