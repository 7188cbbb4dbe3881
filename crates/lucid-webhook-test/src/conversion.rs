//! ConversionReviews as sent and validated by the API server
//! (`apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use lucid_text::names::{is_name, is_qualified_name};
use serde_json::{Map, Value, json};
use snafu::Snafu;

use crate::call::Endpoint;
use crate::checks;
use crate::new_uid;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";
const TIMEOUT: Duration = Duration::from_secs(30);
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The objects were not converted. There is no failurePolicy: clients that read or list the objects get this error.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(display("conversion webhook for {of} {message}"))]
pub struct ConversionFailed {
    of: String,
    message: String,
}

/// A conversion webhook registered in a CustomResourceDefinition.
#[derive(Clone, Debug)]
pub struct ConversionWebhook {
    endpoint: Endpoint,
}

impl ConversionWebhook {
    pub(super) const fn new(endpoint: Endpoint) -> Self {
        Self { endpoint }
    }

    /// Converts `objects` to `desired`, such as `example.com/v1`, as for a LIST. Only objects of other versions are
    /// sent; if there are none, the webhook is not called. Returned objects keep their original metadata, except for
    /// labels and annotations.
    ///
    /// # Errors
    ///
    /// [`ConversionFailed`] if the call fails or the API server would reject the response.
    pub async fn convert(&self, objects: &[Value], desired: &str) -> Result<Vec<Value>, ConversionFailed> {
        let sent: Vec<&Value> =
            objects.iter().filter(|object| text(object, "/apiVersion") != desired).collect();
        let Some(first) = sent.first() else { return Ok(objects.to_vec()) };
        let of = format!("{}, Kind={}List", text(first, "/apiVersion"), text(first, "/kind"));
        let failed = |message| ConversionFailed { of, message };
        let converted = match self.call(&sent, desired).await {
            Ok(converted) => converted,
            Err(message) => return Err(failed(format!("failed: {message}"))),
        };
        if converted.len() != sent.len() {
            return Err(failed(format!("returned {} objects, expected {}", converted.len(), sent.len())));
        }
        let mut converted = converted.into_iter().enumerate();
        let mut list = Vec::with_capacity(objects.len());
        for object in objects {
            let answer = if text(object, "/apiVersion") == desired { None } else { converted.next() };
            list.push(match answer {
                None => object.clone(),
                Some((index, answer)) => {
                    let restored = compare(object, &answer, desired)
                        .map_err(|error| format!("converted object at index {index}: {error}"))
                        .and_then(|()| {
                            restore_metadata(object, answer)
                                .map_err(|error| format!("metadata in object at index {index}: {error}"))
                        });
                    match restored {
                        Ok(restored) => restored,
                        Err(error) => return Err(failed(format!("returned invalid {error}"))),
                    }
                }
            });
        }
        Ok(list)
    }

    async fn call(&self, objects: &[&Value], desired: &str) -> Result<Vec<Value>, String> {
        let uid = new_uid();
        let review = json!({
            "kind": KIND,
            "apiVersion": API_VERSION,
            "request": {"uid": uid, "desiredAPIVersion": desired, "objects": objects},
            // Go serializes an empty response into the request.
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        });
        let called = self.endpoint.call(TIMEOUT, Bytes::from(review.to_string())).await;
        let review = called.response?;
        let (api_version, kind) = checks::expect_type(&review, API_VERSION, KIND)?;
        if let Some(wrong) = checks::wrong_type(&api_version, &kind, API_VERSION, KIND) {
            return Err(wrong);
        }
        let response: Option<Map<String, Value>> = checks::field(&review, "response")?;
        let response = Value::Object(response.ok_or("no response provided")?);
        let found: String = checks::field(&response, "uid")?;
        if found != uid {
            return Err(format!("expected response.uid={uid:?}, got {found:?}"));
        }
        let result: Status = checks::field(&response, "result")?;
        let status = result.status.unwrap_or_default();
        if status != "Success" {
            let message = result.message.filter(|message| !message.is_empty());
            return Err(
                message.unwrap_or_else(|| format!("response.result.status was '{status}', not 'Success'"))
            );
        }
        checks::field(&response, "convertedObjects")
    }
}

/// Checks that a converted object is the same object in the requested version.
fn compare(original: &Value, converted: &Value, desired: &str) -> Result<(), String> {
    if text(converted, "/kind").is_empty() {
        return Err(format!("Object 'Kind' is missing in '{converted}'"));
    }
    for (what, pointer, expected) in
        [("groupVersion", "/apiVersion", desired), ("kind", "/kind", text(original, "/kind"))]
    {
        let received = text(converted, pointer);
        if received != expected {
            return Err(format!("invalid {what} (expected {expected}, received {received})"));
        }
    }
    for (what, pointer) in
        [("name", "/metadata/name"), ("namespace", "/metadata/namespace"), ("UID", "/metadata/uid")]
    {
        let (expected, received) = (text(original, pointer), text(converted, pointer));
        if received != expected {
            return Err(format!("must have the same {what}: {expected} != {received}"));
        }
    }
    Ok(())
}

/// Restores the original metadata except for labels and annotations.
fn restore_metadata(original: &Value, mut converted: Value) -> Result<Value, String> {
    let metadata = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => return Err(format!("invalid metadata {other} in converted object")),
    };
    let mut restored = match original.get("metadata") {
        None => Map::new(),
        Some(Value::Object(metadata)) => metadata.clone(),
        Some(other) => return Err(format!("invalid metadata {other} in input object")),
    };
    for field in ["labels", "annotations"] {
        match metadata.get(field) {
            None | Some(Value::Null) => drop(restored.remove(field)),
            Some(Value::Object(values)) => {
                check_values(field, values, restored.get(field))?;
                restored.insert(field.to_owned(), Value::Object(values.clone()));
            }
            Some(other) => return Err(format!("invalid metadata.{field} {other} in converted object")),
        }
    }
    converted["metadata"] = Value::Object(restored);
    Ok(converted)
}

/// Validates new labels or annotations; existing ones are not checked.
fn check_values(field: &str, values: &Map<String, Value>, before: Option<&Value>) -> Result<(), String> {
    let mut texts = BTreeMap::new();
    for (key, value) in values {
        let text = value
            .as_str()
            .ok_or_else(|| format!("metadata.{field}[{key}] must be a string in converted object"))?;
        texts.insert(key.as_str(), text);
    }
    if before.and_then(Value::as_object).is_some_and(|before| before == values) {
        return Ok(());
    }
    for (key, value) in &texts {
        let invalid = |what: &str| Err(format!("metadata.{field}: Invalid value: {what}"));
        let is_key = match field {
            "labels" => is_qualified_name(key),
            // The prefix may be in upper case.
            _ => is_qualified_name(&key.to_ascii_lowercase()),
        };
        if !is_key {
            return invalid(&format!("{key:?} is not a qualified name"));
        }
        if field == "labels" && !value.is_empty() && !is_name(value) {
            return invalid(&format!("{value:?} is not a label value"));
        }
    }
    let size: usize = texts.iter().map(|(key, value)| key.len() + value.len()).sum();
    if field == "annotations" && size > ANNOTATIONS_LIMIT {
        return Err(format!(
            "metadata.annotations: Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        ));
    }
    Ok(())
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
