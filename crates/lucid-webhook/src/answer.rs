//! From a handler's answer to bytes that the API server accepts.
//!
//! The API server checks every answer, refusals included, and a breach counts as a failed call. So the same checks
//! are made here first, where the cause can still be named.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;
use snafu::{OptionExt, ResultExt, Snafu};

use crate::patch::JsonPatch;
use crate::response::{AdmissionResponse, Denial};
use crate::review::{API_VERSION, AdmissionRequest, KIND};
use crate::router::WebhookKind;

/// Above this many characters in all, the API server cuts each warning to 256.
const WARNINGS_TOTAL: usize = 4096;
const WARNING_CUT: usize = 256;

/// Why a handler's answer cannot be sent.
#[derive(Debug, Snafu)]
pub(crate) enum AnswerError {
    #[snafu(display("a validating webhook answered with a patch"))]
    PatchFromValidation,
    #[snafu(display("failed to patch: the request carries no object"))]
    PatchWithoutObject,
    #[snafu(display("failed to decode the object that the patch is for: {source}"))]
    Object { source: serde_json::Error },
    #[snafu(display("the patch does not apply to the object: {source}"))]
    PatchDoesNotApply { source: json_patch::PatchError },
}

/// Makes `response` one that the API server accepts, or says why that is impossible.
pub(crate) fn check(
    kind: WebhookKind,
    request: &AdmissionRequest,
    mut response: AdmissionResponse,
) -> Result<AdmissionResponse, AnswerError> {
    if response.denial.is_some() {
        response.patch = None;
    }
    // An empty patch is refused together with its type; nothing to change is no patch.
    response.patch = response.patch.filter(|patch| !patch.is_empty());
    if let Some(patch) = &response.patch {
        if kind == WebhookKind::Validating {
            return PatchFromValidationSnafu.fail();
        }
        check_patch(request, patch)?;
    }
    response.warnings = acceptable_warnings(response.warnings);
    response.audit_annotations.retain(|key, _| {
        let keep = is_name(key);
        if !keep {
            tracing::warn!(
                key,
                "dropped an audit annotation: its key is not the name part of a qualified name"
            );
        }
        keep
    });
    Ok(response)
}

/// A patch that does not apply rejects the request whatever the webhook's failurePolicy says.
fn check_patch(request: &AdmissionRequest, patch: &JsonPatch) -> Result<(), AnswerError> {
    let object = request.object.as_ref().context(PatchWithoutObjectSnafu)?;
    let mut object = object.decode().context(ObjectSnafu)?;
    json_patch::patch(&mut object, patch.operations()).context(PatchDoesNotApplySnafu)
}

/// The API server silently drops a warning with a control character and cuts all of them when they are long.
fn acceptable_warnings(warnings: Vec<String>) -> Vec<String> {
    let mut warnings: Vec<String> = warnings
        .into_iter()
        .map(|warning| {
            warning.split(char::is_control).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        })
        .filter(|warning| !warning.is_empty())
        .collect();
    if warnings.iter().map(|warning| warning.chars().count()).sum::<usize>() > WARNINGS_TOTAL {
        for warning in &mut warnings {
            if warning.chars().count() > WARNING_CUT {
                *warning = warning.chars().take(WARNING_CUT - 1).chain(['…']).collect();
            }
        }
        let fitting = WARNINGS_TOTAL / WARNING_CUT - 1;
        if warnings.len() > fitting {
            let more = warnings.len() - fitting;
            warnings.truncate(fitting);
            warnings.push(format!("and {more} more warnings"));
        }
    }
    warnings
}

/// The name part of a qualified name (`k8s.io/apimachinery/pkg/util/validation`).
fn is_name(key: &str) -> bool {
    let bytes = key.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    bytes.len() <= 63
        && ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireReview<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: WireResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// Base64, as `[]byte` is written in the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    audit_annotations: &'a std::collections::BTreeMap<String, String>,
}

#[derive(Serialize)]
struct WireStatus<'a> {
    status: &'static str,
    code: u16,
    reason: &'a str,
    message: &'a str,
}

/// Writes the AdmissionReview for a checked response.
pub(crate) fn write(uid: &str, response: &AdmissionResponse) -> Result<Bytes, serde_json::Error> {
    let patch = response.patch.as_ref().map(|patch| serde_json::to_vec(patch.operations())).transpose()?;
    let status = response.denial.as_ref().map(|Denial { code, reason, message }| WireStatus {
        status: "Failure",
        code: *code,
        reason,
        message,
    });
    let review = WireReview {
        api_version: API_VERSION,
        kind: KIND,
        response: WireResponse {
            uid,
            allowed: response.denial.is_none(),
            status,
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch: patch.map(|patch| STANDARD.encode(patch)),
            warnings: &response.warnings,
            audit_annotations: &response.audit_annotations,
        },
    };
    serde_json::to_vec(&review).map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_keeps_its_text_and_loses_its_control_characters() {
        assert_eq!(acceptable_warnings(vec!["a\nb\u{0}c".into(), "\n".into()]), ["a b c"]);
    }

    #[test]
    fn long_warnings_are_cut_so_that_none_is_dropped_silently() {
        let cut = acceptable_warnings((0..40).map(|i| format!("{i} {}", "é".repeat(300))).collect());
        assert!(cut.iter().map(|w| w.chars().count()).sum::<usize>() <= WARNINGS_TOTAL);
        assert_eq!(cut.last().map(String::as_str), Some("and 25 more warnings"));
        assert!(cut.iter().all(|w| w.chars().count() <= WARNING_CUT));
    }

    #[test]
    fn audit_keys_follow_the_rule_of_qualified_names() {
        for (key, accepted) in [("plan-hash", true), ("a", true), ("", false), ("-a", false), ("a/b", false)]
        {
            assert_eq!(is_name(key), accepted, "{key:?}");
        }
        assert!(is_name(&"a".repeat(63)) && !is_name(&"a".repeat(64)));
    }
}
