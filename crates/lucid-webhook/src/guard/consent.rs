//! Consent of objects to webhooks, by annotation.

use super::metadata::{Metadata, ObjectMeta};
use crate::kind::WebhookKind;
use crate::review::AdmissionRequest;

/// Annotation of an object: names of the mutating webhooks that may change it, separated by commas.
pub const CAN_MUTATE: &str = "canMutate";
/// Annotation of an object: names of the validating webhooks that may evaluate it, separated by commas.
pub const CAN_VALIDATE: &str = "canValidate";

/// Returns `true` if the object consents to `webhook`.
///
/// For a mutating webhook, the object in the request has to consent. For a validating one, the stored object suffices:
/// otherwise an update could bypass validation by withdrawing its consent.
pub(crate) fn consents(
    webhook: &str,
    kind: WebhookKind,
    request: &AdmissionRequest,
    metadata: &Metadata,
) -> bool {
    let lists = |key: &str, object: &ObjectMeta| {
        object.annotation(key).is_some_and(|names| names.split(',').any(|name| name.trim() == webhook))
    };
    match kind {
        WebhookKind::Mutating => {
            // DELETE has the stored object only.
            let judged = if request.object.is_some() { &metadata.object } else { &metadata.old_object };
            judged.as_ref().is_some_and(|object| lists(CAN_MUTATE, object))
        }
        WebhookKind::Validating => metadata.each().any(|object| lists(CAN_VALIDATE, object)),
    }
}
