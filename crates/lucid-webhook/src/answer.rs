//! Converts a handler's response to bytes that the API server accepts.
//!
//! The API server validates every response, including denials, and treats a violation as a failed call. The same checks
//! run here first, where the cause can still be reported.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kube_core::Status;
use serde::Serialize;
use serde_json::Value;
use snafu::{OptionExt, ResultExt, Snafu};

use crate::kind::WebhookKind;
use crate::names::is_name;
use crate::patch::{AllowedPaths, JsonPatch, PatchError, touched};
use crate::raw_object::{DecodeError, RawObject};
use crate::response::AdmissionResponse;
use crate::review::{API_VERSION, KIND};

/// Total length in characters above which the API server truncates each warning to 256.
const WARNINGS_TOTAL: usize = 4096;
const WARNING_CUT: usize = 256;
/// Room for a last warning with the number of omitted ones.
const SUMMARY: usize = 40;

/// A response that cannot be sent.
#[derive(Debug, Snafu)]
pub(crate) enum AnswerError {
    #[snafu(display("a validating webhook answered with a patch"))]
    PatchFromValidation,
    #[snafu(display("the answer is a patch, and the request carries no object"))]
    PatchWithoutObject,
    #[snafu(display("failed to decode the object that the patch is for: {source}"))]
    Object { source: DecodeError },
    #[snafu(display("the patch does not apply to the object: {source}"))]
    PatchDoesNotApply { source: PatchError },
    #[snafu(display("the patch is refused: {source}"))]
    Forbidden { source: PatchError },
}

/// Makes `response`, to a request about `object`, acceptable to the API server, or fails.
pub(crate) fn check(
    kind: WebhookKind,
    object: Option<&RawObject>,
    allowed_paths: &[AllowedPaths],
    mut response: AdmissionResponse,
) -> Result<AdmissionResponse, AnswerError> {
    if response.denial.is_some() {
        response.patch = None;
    }
    // The API server rejects empty patches.
    response.patch = response.patch.filter(|patch| !patch.is_empty());
    if let Some(patch) = &response.patch {
        if kind == WebhookKind::Validating {
            return PatchFromValidationSnafu.fail();
        }
        check_patch(object, allowed_paths, patch)?;
    }
    Ok(acceptable(response))
}

/// Adjusts warnings and audit annotations so that the API server does not drop them.
pub(crate) fn acceptable(mut response: AdmissionResponse) -> AdmissionResponse {
    let warnings = acceptable_warnings(&response.warnings);
    response.cut.warnings += warnings.changed;
    response.warnings = warnings.acceptable;
    response.audit_annotations.retain(|key, _| {
        let keep = is_name(key);
        if !keep {
            response.cut.audit_annotations += 1;
            tracing::warn!(
                key,
                "dropped an audit annotation: its key is not the name part of a qualified name"
            );
        }
        keep
    });
    response
}

/// Fails if the patch does not apply: the API server would reject the request regardless of the failurePolicy.
fn check_patch(
    object: Option<&RawObject>,
    allowed_paths: &[AllowedPaths],
    patch: &JsonPatch,
) -> Result<(), AnswerError> {
    let object = object.context(PatchWithoutObjectSnafu)?;
    let (part, reduced) = touched::read(object, patch).context(ObjectSnafu)?;
    if allowed_paths.iter().all(|paths| paths.cover(patch, &part)) {
        return reduced.apply_to_object(&part).map(drop).context(PatchDoesNotApplySnafu);
    }
    // `check_change` also compares the untouched parts.
    let object: Value = object.decode().context(ObjectSnafu)?;
    let after = patch.apply_to_object(&object).context(PatchDoesNotApplySnafu)?;
    allowed_paths.iter().try_for_each(|paths| paths.check_change(&object, &after).context(ForbiddenSnafu))
}

/// Warnings that reach the user, and the number of given ones that were changed.
struct Warnings {
    acceptable: Vec<String>,
    changed: u64,
}

/// Removes control characters, and truncates long warnings. The API server would silently drop or truncate them.
fn acceptable_warnings(given: &[String]) -> Warnings {
    let mut acceptable: Vec<String> = given
        .iter()
        .map(|warning| {
            warning.split(char::is_control).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
        })
        .filter(|warning| !warning.is_empty())
        .collect();
    if acceptable.iter().map(|warning| warning.chars().count()).sum::<usize>() > WARNINGS_TOTAL {
        for warning in &mut acceptable {
            if warning.chars().count() > WARNING_CUT {
                *warning = warning.chars().take(WARNING_CUT - 1).chain(['…']).collect();
            }
        }
        let mut room = WARNINGS_TOTAL - SUMMARY;
        let fits = |warning: &String| {
            let left = room.checked_sub(warning.chars().count());
            room = left.unwrap_or_default();
            left.is_some()
        };
        let fitting = acceptable.iter().map(fits).take_while(|fits| *fits).count();
        if acceptable.len() > fitting {
            let more = acceptable.len() - fitting;
            acceptable.truncate(fitting);
            acceptable.push(format!("and {more} more warnings"));
        }
    }
    let unchanged = given.iter().filter(|warning| acceptable.contains(warning)).count();
    Warnings { acceptable, changed: (given.len() - unchanged) as u64 }
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
    status: Option<&'a Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// Base64, as the API encodes `[]byte`.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    audit_annotations: &'a std::collections::BTreeMap<String, String>,
}

/// Serializes the AdmissionReview for a checked response.
pub(crate) fn write(uid: &str, response: &AdmissionResponse) -> Result<Bytes, serde_json::Error> {
    let patch = response.patch.as_ref().map(patch_text).transpose()?;
    let review = WireReview {
        api_version: API_VERSION,
        kind: KIND,
        response: WireResponse {
            uid,
            allowed: response.denial.is_none(),
            status: response.denial.as_deref(),
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch: patch.map(|patch| STANDARD.encode(patch)),
            warnings: &response.warnings,
            audit_annotations: &response.audit_annotations,
        },
    };
    serde_json::to_vec(&review).map(Bytes::from)
}

/// Serializes a patch with the same escapes as Go: the API server compares the value of a `test` operation byte by byte
/// with its own serialization.
fn patch_text(patch: &JsonPatch) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string(patch.operations())?;
    const ESCAPED: [(char, &str); 5] = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    Ok(ESCAPED.into_iter().fold(text, |text, (character, escape)| match text.contains(character) {
        true => text.replace(character, escape),
        false => text,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_keeps_its_text_and_loses_its_control_characters() {
        let warnings = acceptable_warnings(&["a\nb\u{0}c".into(), "\n".into(), "d".into()]);
        assert_eq!(warnings.acceptable, ["a b c", "d"]);
        assert_eq!(warnings.changed, 2);
    }

    #[test]
    fn a_denial_says_when_the_client_may_try_again() {
        let denial = || AdmissionResponse::deny(429, "TooManyRequests", "too many");
        let details = |response| {
            let review: Value = serde_json::from_slice(&write("u-1", &response).unwrap()).unwrap();
            review["response"]["status"]["details"].clone()
        };
        assert_eq!(details(denial()), Value::Null);
        assert_eq!(details(denial().with_retry_after(1)), serde_json::json!({"retryAfterSeconds": 1}));
        assert_eq!(details(AdmissionResponse::allow().with_retry_after(1)), Value::Null);
    }

    #[test]
    fn long_warnings_are_truncated_and_counted() {
        let given: Vec<_> = (0..40).map(|i| format!("{i} {}", "é".repeat(300))).collect();
        let Warnings { acceptable, changed } = acceptable_warnings(&given);
        assert!(acceptable.iter().map(|w| w.chars().count()).sum::<usize>() <= WARNINGS_TOTAL);
        assert_eq!(acceptable.last().map(String::as_str), Some("and 25 more warnings"));
        let given: Vec<_> = (0..60).map(|i| format!("{i} {}", "é".repeat(113))).collect();
        let short = acceptable_warnings(&given).acceptable;
        assert_eq!((short.len(), short[0].chars().count()), (36, 115));
        assert!(short.iter().map(|w| w.chars().count()).sum::<usize>() <= WARNINGS_TOTAL);
        assert!(acceptable.iter().all(|w| w.chars().count() <= WARNING_CUT));
        assert_eq!(changed, 40);
    }
}
