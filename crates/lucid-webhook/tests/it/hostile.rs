//! Whatever the bytes, the answer is one the API server accepts or a 4xx.

use std::convert::Infallible;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use lucid_webhook::{AdmissionRequest, AdmissionResponse, Router, Webhook};
use proptest::prelude::*;
use serde_json::Value;
use tower::{Service, service_fn};

const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u-1",
"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},
"name":"web","namespace":"shop","operation":"UPDATE","userInfo":{"username":"jane","extra":{"a":["b"]}},
"object":{"kind":"Pod","metadata":{"name":"web"}},"oldObject":{"kind":"Pod"},"dryRun":true,"options":null}}"#;

fn answer(body: Vec<u8>) -> (u16, Bytes) {
    let handler = service_fn(async |request: AdmissionRequest| {
        // The object may be no JSON: that is known when it is decoded.
        if let Some(Err(error)) = request.object.map(|object| object.decode::<Value>()) {
            assert!(error.to_string().starts_with("failed to decode the object"), "{error}");
        }
        Ok::<_, Infallible>(AdmissionResponse::allow())
    });
    let mut router = Router::new().webhook("/v", Webhook::validating("v.example.com", handler));
    let request =
        Request::post("/v").header("content-type", "application/json").body(Full::new(body.into())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let response = router.call(request).await.unwrap();
        (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes())
    })
}

fn assert_acceptable(body: Vec<u8>) {
    let (status, answer) = answer(body);
    if status == 200 {
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer["response"]["uid"].as_str().is_some_and(|uid| !uid.is_empty()), "{answer}");
        assert!(answer["response"]["allowed"].is_boolean());
        assert_ne!(answer["response"]["status"]["code"], 500, "{answer}");
    } else {
        assert!((400..500).contains(&status), "{status}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes(body in proptest::collection::vec(any::<u8>(), 0..2048)) {
        assert_acceptable(body);
    }

    #[test]
    fn a_review_with_bytes_replaced(edits in proptest::collection::vec((0..REVIEW.len(), any::<u8>()), 1..8)) {
        let mut body = REVIEW.as_bytes().to_vec();
        for (at, byte) in edits {
            body[at] = byte;
        }
        assert_acceptable(body);
    }

    #[test]
    fn a_review_cut_and_joined(cut in 0..REVIEW.len(), from in 0..REVIEW.len()) {
        assert_acceptable([&REVIEW.as_bytes()[..cut], &REVIEW.as_bytes()[from..]].concat());
    }
}

#[test]
fn the_review_itself_is_fine() {
    assert_eq!(answer(REVIEW.into()).0, 200);
}
