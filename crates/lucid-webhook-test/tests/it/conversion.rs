//! ConversionReviews are validated as by the API server.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use lucid_webhook_test::{ApiServer, ConversionWebhook};
use serde_json::{Value, json};
use tower::service_fn;

fn object(version: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Widget",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"), "generation": 3,
            "labels": {"a": "b", "NOT valid": "kept"}},
        "spec": {"size": 1},
    })
}

/// A converter that only sets the version. `change` modifies the resulting review.
fn converter(change: impl Fn(&mut Value) + Clone + Send + Sync + 'static) -> ConversionWebhook {
    let service = service_fn(move |request: Request<Full<Bytes>>| {
        let change = change.clone();
        async move {
            assert_eq!(request.uri().query(), Some("timeout=30s"));
            let review: Value =
                serde_json::from_slice(&request.into_body().collect().await?.to_bytes()).unwrap();
            let mut objects = review["request"]["objects"].clone();
            for object in objects.as_array_mut().unwrap() {
                assert_ne!(
                    object["apiVersion"], review["request"]["desiredAPIVersion"],
                    "nothing to convert"
                );
                object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
            }
            let mut review = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "response": {"uid": review["request"]["uid"], "result": {"status": "Success"},
                    "convertedObjects": objects},
            });
            change(&mut review);
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(review.to_string()))))
        }
    });
    ApiServer::in_process(service).converting("/convert")
}

const FIRST: &str = "/response/convertedObjects/0";

type Change = Box<dyn Fn(&mut Value) + Send + Sync>;

fn set(pointer: &'static str, value: Value) -> Change {
    Box::new(move |review| {
        if let Some(found) = review.pointer_mut(pointer) {
            found.clone_from(&value);
        } else {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            review.pointer_mut(parent).unwrap()[key] = value.clone();
        }
    })
}

#[tokio::test]
async fn only_other_versions_are_converted_and_metadata_is_kept() {
    let webhook = converter(|review| {
        let metadata = review.pointer_mut(FIRST).unwrap();
        metadata["metadata"]["generation"] = 99.into();
        metadata["metadata"].as_object_mut().unwrap().remove("labels");
        metadata["metadata"]["annotations"] = json!({"example.com/Old": "1"});
    });
    let objects = [object("v2", "x"), object("v1", "a"), object("v2", "y"), object("v1", "b")];
    let converted = webhook.convert(&objects, "example.com/v2").await.unwrap();
    let names: Vec<&str> = converted.iter().map(|o| o["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["x", "a", "y", "b"]);
    assert!(converted.iter().all(|object| object["apiVersion"] == "example.com/v2"));
    let metadata = &converted[1]["metadata"];
    assert_eq!(metadata["generation"], 3, "restored");
    assert_eq!(metadata.get("labels"), None, "absent is removed");
    assert_eq!(metadata["annotations"], json!({"example.com/Old": "1"}));
    assert_eq!(
        converted[3]["metadata"]["labels"]["NOT valid"], "kept",
        "what is not changed is not looked at"
    );
}

#[tokio::test]
async fn objects_in_the_requested_version_are_not_sent() {
    let refusing = service_fn(async |_: Request<Full<Bytes>>| {
        Err::<Response<Full<Bytes>>, _>(std::io::Error::other("called"))
    });
    let webhook = ApiServer::in_process(refusing).converting("/");
    let objects = [object("v2", "a")];
    assert_eq!(webhook.convert(&objects, "example.com/v2").await.unwrap(), objects);
    let error = webhook.convert(&objects, "example.com/v1").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "conversion webhook for example.com/v2, Kind=WidgetList failed: Post \
         \"https://webhook.in-process.svc:443/?timeout=30s\": called"
    );
}

#[tokio::test]
async fn an_invalid_response_fails_the_whole_list() {
    let at_0 = |problem: &str| format!("returned invalid converted object at index 0: {problem}");
    let metadata = |problem: &str| format!("returned invalid metadata in object at index 0: {problem}");
    let failed = |problem: &str| format!("failed: {problem}");
    let swapped: Change =
        Box::new(|review| review["response"]["convertedObjects"].as_array_mut().unwrap().swap(0, 1));
    let lost = json!({"status": "Failure", "message": "lost", "code": 422});
    let labels = "/response/convertedObjects/0/metadata/labels";
    let annotations = "/response/convertedObjects/0/metadata/annotations";
    let cases: Vec<(Change, String)> = vec![
        (set("/kind", json!("")), failed("expected webhook response of apiextensions.k8s.io/v1")),
        (set("/kind", json!("Pod")), failed("no kind \"Pod\"")),
        (set("/response", json!(null)), failed("no response provided")),
        (set("/response/uid", json!("x")), failed("expected response.uid=")),
        (set("/response/result/status", json!("")), failed("response.result.status was '', not 'Success'")),
        (set("/response/result", lost), failed("lost")),
        (set("/response/convertedObjects", json!([])), "returned 0 objects, expected 2".into()),
        (swapped, at_0("must have the same name: a != b")),
        (
            set("/response/convertedObjects/0/apiVersion", json!("example.com/v1")),
            at_0("invalid groupVersion (expected example.com/v2, received example.com/v1)"),
        ),
        (
            set("/response/convertedObjects/0/kind", json!("Gadget")),
            at_0("invalid kind (expected Widget, received Gadget)"),
        ),
        (set(FIRST, json!({})), at_0("Object 'Kind' is missing")),
        (
            set("/response/convertedObjects/0/metadata/namespace", json!("x")),
            at_0("must have the same namespace: shop != x"),
        ),
        (
            set("/response/convertedObjects/0/metadata/uid", json!("x")),
            at_0("must have the same UID: uid-a != x"),
        ),
        (set(labels, json!({"a": 1})), metadata("metadata.labels[a] must be a string")),
        (set(labels, json!({"NOT valid": "x"})), metadata("metadata.labels: Invalid value")),
        (set(labels, json!({"a": "not valid"})), metadata("metadata.labels: Invalid value")),
        (set(annotations, json!({"a": "x".repeat(300_000)})), metadata("metadata.annotations: Too long")),
        (set(annotations, json!([])), metadata("invalid metadata.annotations")),
    ];
    for (change, expected) in cases {
        let change = std::sync::Arc::new(change);
        let webhook = converter(move |review| change(review));
        let error =
            webhook.convert(&[object("v1", "a"), object("v1", "b")], "example.com/v2").await.unwrap_err();
        let full = format!("conversion webhook for example.com/v1, Kind=WidgetList {expected}");
        assert!(error.to_string().starts_with(&full), "{expected}: {error}");
    }
}
