//! Makes a response acceptable to the API server.
//!
//! The API server validates every response, including denials, and treats a violation as a failed call. The same checks
//! run here first, where the cause can still be reported.

use lucid_text::names::is_name;
use serde_json::Value;
use snafu::{OptionExt, ResultExt, Snafu};

use crate::kind::WebhookKind;
use crate::patch::{AllowedPaths, JsonPatch, PatchError, touched};
use crate::raw_object::{DecodeError, RawObject};
use crate::response::AdmissionResponse;

/// Total length in characters above which the API server truncates each warning to 256.
const WARNINGS_TOTAL: usize = 4096;
const WARNING_CUT: usize = 256;
/// Room for a last warning with the number of omitted ones.
const SUMMARY: usize = 40;

#[derive(Debug, Snafu)]
pub(crate) enum ResponseError {
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

/// Fails if the API server would reject `response` to a request about `object`, or if its patch changes other fields
/// than those of the webhook (`allowed`) and of its administrator (`permitted`).
pub(crate) fn check(
    kind: WebhookKind,
    object: Option<&RawObject>,
    allowed: &[AllowedPaths],
    permitted: Option<&AllowedPaths>,
    mut response: AdmissionResponse,
) -> Result<AdmissionResponse, ResponseError> {
    if response.denial.is_some() {
        response.patch = None;
    }
    // The API server rejects empty patches.
    response.patch = response.patch.filter(|patch| !patch.is_empty());
    if let Some(patch) = &response.patch {
        if kind == WebhookKind::Validating {
            return PatchFromValidationSnafu.fail();
        }
        let object = object.context(PatchWithoutObjectSnafu)?;
        // Its author guarantees that it applies, but not that an administrator permits it.
        if !patch.is_unchecked() || permitted.is_some() || cfg!(debug_assertions) {
            check_patch(object, allowed.iter().chain(permitted), patch)?;
        }
    }
    Ok(response)
}

/// Adjusts warnings and audit annotations so that the API server does not drop them.
pub(crate) fn acceptable(mut response: AdmissionResponse) -> AdmissionResponse {
    let is_plain = |warning: &String| !warning.is_empty() && !warning.contains(char::is_control);
    let length: usize = response.warnings.iter().map(String::len).sum();
    if length > WARNINGS_TOTAL || !response.warnings.iter().all(is_plain) {
        let warnings = acceptable_warnings(&response.warnings);
        response.cut.warnings += warnings.changed;
        response.warnings = warnings.acceptable;
    }
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
fn check_patch<'a>(
    object: &RawObject,
    mut allowed: impl Iterator<Item = &'a AllowedPaths> + Clone,
    patch: &JsonPatch,
) -> Result<(), ResponseError> {
    patch.check_text().context(PatchDoesNotApplySnafu)?;
    let part = touched::read(object, patch).context(ObjectSnafu)?;
    if allowed.clone().all(|paths| paths.cover(patch, &part)) {
        return patch.apply_to_object(&part).map(drop).context(PatchDoesNotApplySnafu);
    }
    // `check_change` also compares the untouched parts.
    let object: Value = object.decode().context(ObjectSnafu)?;
    let after = patch.apply_to_object(&object).context(PatchDoesNotApplySnafu)?;
    allowed.try_for_each(|paths| paths.check_change(&object, &after).context(ForbiddenSnafu))
}

/// Warnings that reach the user, and the number of given ones that were changed.
struct Warnings {
    acceptable: Vec<String>,
    changed: u64,
}

/// Removes control characters, and truncates long warnings. The API server would silently drop or truncate them.
fn acceptable_warnings(given: &[String]) -> Warnings {
    let clean = |warning: &String| {
        warning.split(char::is_control).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    };
    let mut shown: Vec<_> = given.iter().map(|warning| (warning, clean(warning))).collect();
    shown.retain(|(_, text)| !text.is_empty());
    let mut more = 0;
    if shown.iter().map(|(_, text)| text.chars().count()).sum::<usize>() > WARNINGS_TOTAL {
        for (_, text) in &mut shown {
            if text.chars().count() > WARNING_CUT {
                *text = text.chars().take(WARNING_CUT - 1).chain(['…']).collect();
            }
        }
        let mut room = WARNINGS_TOTAL - SUMMARY;
        let fits = |(_, text): &(_, String)| {
            let left = room.checked_sub(text.chars().count());
            room = left.unwrap_or_default();
            left.is_some()
        };
        let fitting = shown.iter().map(fits).take_while(|fits| *fits).count();
        more = shown.len() - fitting;
        shown.truncate(fitting);
    }
    let unchanged = shown.iter().filter(|(given, text)| *given == text).count();
    let summary = (more > 0).then(|| format!("and {more} more warnings"));
    let acceptable = shown.into_iter().map(|(_, text)| text).chain(summary).collect();
    Warnings { acceptable, changed: (given.len() - unchanged) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::write;

    #[test]
    fn control_characters_are_removed_from_warnings() {
        let warnings = acceptable_warnings(&["a\nb\u{0}c".into(), "\n".into(), "d".into()]);
        assert_eq!(warnings.acceptable, ["a b c", "d"]);
        assert_eq!(warnings.changed, 2);
        // Omitted duplicates of a warning count as changed.
        assert_eq!(acceptable_warnings(&vec!["é".repeat(100); 50]).changed, 10);
    }

    #[test]
    fn a_denial_states_when_the_client_may_retry() {
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
