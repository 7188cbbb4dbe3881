//! Validation of AdmissionReview responses (`plugin/webhook/request/admissionreview.go`).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::outcome::Cause;

/// A validated response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) allowed: bool,
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: String,
    pub(super) status: Option<Status>,
    pub(super) warnings: Vec<String>,
    pub(super) audit_annotations: BTreeMap<String, String>,
}

/// `metav1.Status`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    #[serde(deserialize_with = "null_is_default")]
    pub(super) status: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) message: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) reason: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(super) code: i32,
    #[serde(deserialize_with = "null_is_default")]
    details: Details,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(deserialize_with = "null_is_default")]
    causes: Vec<WireCause>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireCause {
    #[serde(deserialize_with = "null_is_default")]
    reason: String,
    #[serde(deserialize_with = "null_is_default")]
    message: String,
    #[serde(deserialize_with = "null_is_default")]
    field: String,
}

impl Status {
    pub(super) fn into_causes(self) -> Vec<Cause> {
        let causes = self.details.causes.into_iter();
        causes.map(|WireCause { reason, message, field }| Cause { reason, message, field }).collect()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireResponse {
    #[serde(deserialize_with = "null_is_default")]
    uid: String,
    #[serde(deserialize_with = "null_is_default")]
    allowed: bool,
    status: Option<Status>,
    #[serde(deserialize_with = "go_bytes")]
    patch: Vec<u8>,
    patch_type: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    audit_annotations: BTreeMap<String, Option<String>>,
    #[serde(deserialize_with = "null_is_default")]
    warnings: Vec<Option<String>>,
}

/// Validates the response to the call `uid`. The error states why the call failed.
///
/// `allowed` is evaluated afterwards: a denial that violates a rule is a failed call.
pub(super) fn verify(review: &Value, uid: &str, mutating: bool) -> Result<Answer, String> {
    let undecodable = |error| format!("failed to call webhook: {error}");
    let (api_version, kind) =
        expect_type(review, "admission.k8s.io/v1", "AdmissionReview").map_err(undecodable)?;
    let response: Option<WireResponse> = field(review, "response").map_err(undecodable)?;
    let invalid = |what: String| Err(format!("received invalid webhook response: {what}"));
    let Some(response) = response else {
        return invalid("webhook response was absent".to_owned());
    };
    if response.uid != uid {
        return invalid(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    if let Some(wrong) = wrong_type(&api_version, &kind, "admission.k8s.io/v1", "AdmissionReview") {
        return invalid(wrong);
    }
    let (patch, patch_type) = (response.patch, response.patch_type);
    let breach = match (mutating, patch.is_empty(), patch_type.as_deref()) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => "",
    };
    if !breach.is_empty() {
        return invalid(breach.to_owned());
    }
    let annotations = response.audit_annotations.into_iter();
    Ok(Answer {
        allowed: response.allowed,
        patch,
        patch_type: patch_type.unwrap_or_default(),
        status: response.status,
        warnings: response.warnings.into_iter().flatten().collect(),
        audit_annotations: annotations.map(|(key, value)| (key, value.unwrap_or_default())).collect(),
    })
}

/// Returns `apiVersion` and `kind` of a response that decodes as a review. Absent ones count as expected for decoding.
pub(super) fn expect_type(review: &Value, api_version: &str, kind: &str) -> Result<(String, String), String> {
    let found: (String, String) = (field(review, "apiVersion")?, field(review, "kind")?);
    let or = |found: &str, meant: &str| if found.is_empty() { meant.to_owned() } else { found.to_owned() };
    let (actual_version, actual_kind) = (or(&found.0, api_version), or(&found.1, kind));
    if (actual_version.as_str(), actual_kind.as_str()) == (api_version, kind) {
        return Ok(found);
    }
    Err(format!("no kind {actual_kind:?} is registered for version {actual_version:?}"))
}

/// Returns an error if the `apiVersion` or `kind` found is absent or wrong.
pub(super) fn wrong_type(
    found_version: &str,
    found_kind: &str,
    api_version: &str,
    kind: &str,
) -> Option<String> {
    let found = (found_version, found_kind);
    let shown = if found_version.is_empty() { "/" } else { found_version };
    (found != (api_version, kind)).then(|| {
        format!("expected webhook response of {api_version}, Kind={kind}, got {shown}, Kind={found_kind}")
    })
}

/// Decodes a field of a JSON object; absent and null give the default.
pub(super) fn field<T: DeserializeOwned + Default>(object: &Value, name: &str) -> Result<T, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::deserialize(value).map_err(|error| format!("json: field {name}: {error}")),
    }
}

/// Decodes bytes as Go does: base64 with optional line breaks, or a list of numbers.
fn go_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Bytes {
        Text(String),
        Numbers(Vec<u8>),
    }
    match Option::deserialize(deserializer)? {
        None => Ok(Vec::new()),
        Some(Bytes::Numbers(bytes)) => Ok(bytes),
        Some(Bytes::Text(text)) => {
            STANDARD.decode(text.replace(['\r', '\n'], "")).map_err(serde::de::Error::custom)
        }
    }
}

/// Go writes an absent list, map or pointer as null.
fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
