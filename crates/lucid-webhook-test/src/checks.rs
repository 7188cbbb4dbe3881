//! Validation of AdmissionReview responses (`plugin/webhook/request/admissionreview.go`).

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A response (`AdmissionResponse` of `admission.k8s.io/v1`). Go reads null as an absent value.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireResponse {
    uid: Option<String>,
    allowed: Option<bool>,
    pub(super) status: Option<Status>,
    #[serde(deserialize_with = "go_bytes")]
    pub(super) patch: Vec<u8>,
    pub(super) patch_type: Option<String>,
    pub(super) audit_annotations: Option<BTreeMap<String, Option<String>>>,
    pub(super) warnings: Option<Vec<Option<String>>>,
}

impl WireResponse {
    pub(super) fn is_allowed(&self) -> bool {
        self.allowed == Some(true)
    }
}

/// Validates the response to the call `uid`. The error states why the call failed.
///
/// `allowed` is evaluated afterwards: a denial that violates a rule is a failed call.
pub(super) fn verify(review: &Value, uid: &str, mutating: bool) -> Result<WireResponse, String> {
    let undecodable = |error| format!("failed to call webhook: {error}");
    let (api_version, kind) =
        expect_type(review, "admission.k8s.io/v1", "AdmissionReview").map_err(undecodable)?;
    let response: Option<WireResponse> = field(review, "response").map_err(undecodable)?;
    let invalid = |what: String| Err(format!("received invalid webhook response: {what}"));
    let Some(response) = response else {
        return invalid("webhook response was absent".to_owned());
    };
    let found = response.uid.as_deref().unwrap_or_default();
    if found != uid {
        return invalid(format!("expected response.uid={uid:?}, got {found:?}"));
    }
    if let Some(wrong) = wrong_type(&api_version, &kind, "admission.k8s.io/v1", "AdmissionReview") {
        return invalid(wrong);
    }
    let breach = match (mutating, response.patch.is_empty(), response.patch_type.as_deref()) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (true, false, Some("")) => "webhook returned invalid response.patchType of \"\"",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, true, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(response),
    };
    invalid(breach.to_owned())
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
