//! Any bytes as an AdmissionReview: read as a struct of its shape reads it, or refused with an error that can be shown;
//! never a panic.

#![no_main]

use std::collections::BTreeMap;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use lucid_webhook::{AdmissionRequest, RawObject};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    name: Option<String>,
    namespace: Option<String>,
    sub_resource: Option<String>,
    operation: String,
    dry_run: Option<bool>,
    kind: Option<BTreeMap<String, &'a RawValue>>,
    user_info: Option<BTreeMap<String, &'a RawValue>>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
    #[serde(borrow)]
    options: Option<&'a RawValue>,
}

/// Of the metadata, so that the rest is skipped.
#[derive(Debug, PartialEq, Deserialize)]
struct View {
    metadata: Option<Metadata>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Metadata {
    name: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

fuzz_target!(|data: &[u8]| {
    let request = AdmissionRequest::from_json(&Bytes::copy_from_slice(data), Instant::now());
    let review = serde_json::from_slice::<Review<'_>>(data);
    match &request {
        Ok(request) => {
            assert!(!request.uid.is_empty());
            let objects = [&request.object, &request.old_object, &request.options];
            objects.into_iter().flatten().for_each(assert_reads_as_serde_json);
            if let Ok(review) = review {
                assert_same(request, &review);
            }
        }
        Err(error) => drop(error.to_string()),
    }
});

fn assert_same(request: &AdmissionRequest, review: &Review<'_>) {
    assert_eq!((&*review.api_version, &*review.kind), ("admission.k8s.io/v1", "AdmissionReview"));
    let expected = &review.request;
    let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    assert_eq!(request.uid, expected.uid);
    assert_eq!(request.name, expected.name.clone().unwrap_or_default());
    assert_eq!(request.namespace, text(&expected.namespace));
    assert_eq!(request.sub_resource, text(&expected.sub_resource));
    assert_eq!(request.operation.as_str(), expected.operation);
    assert_eq!(request.dry_run, expected.dry_run.unwrap_or_default());
    let field = |fields: &Option<BTreeMap<String, &RawValue>>, name: &str| {
        let value = fields.as_ref().and_then(|fields| fields.get(name));
        value
            .and_then(|value| serde_json::from_str::<Option<String>>(value.get()).unwrap())
            .unwrap_or_default()
    };
    assert_eq!(request.kind.kind, field(&expected.kind, "kind"));
    assert_eq!(request.user_info.username, field(&expected.user_info, "username"));
    for (object, expected) in [
        (&request.object, expected.object),
        (&request.old_object, expected.old_object),
        (&request.options, expected.options),
    ] {
        assert_eq!(object.as_ref().map(RawObject::as_bytes), expected.map(|object| object.get().as_bytes()));
    }
}

/// An object that is JSON decodes as serde_json decodes it; one that is none does not.
fn assert_reads_as_serde_json(object: &RawObject) {
    let value = serde_json::from_slice::<serde_json::Value>(object.as_bytes());
    assert_eq!(object.decode().ok(), value.ok());
    if serde_json::from_slice::<&RawValue>(object.as_bytes()).is_ok() {
        let view = serde_json::from_slice::<View>(object.as_bytes());
        assert_eq!(object.decode().ok(), view.ok());
    }
}
