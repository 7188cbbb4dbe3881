//! The object's own say in which webhooks may touch it.

use super::metadata::{Metadata, ObjectMeta};
use crate::kind::WebhookKind;
use crate::review::AdmissionRequest;

/// Annotation of an object: names of the mutating webhooks that may change it, separated by commas.
pub const CAN_MUTATE: &str = "canMutate";
/// Annotation of an object: names of the validating webhooks that may judge it, separated by commas.
pub const CAN_VALIDATE: &str = "canValidate";

/// Whether the object consents to `webhook`.
///
/// To be changed, the object has to consent as it stands in the request. To be judged, it is enough that the stored
/// one does: nobody escapes a judgement by withdrawing the consent in the very update that would be refused.
pub(crate) fn consents(
    webhook: &str,
    kind: WebhookKind,
    request: &AdmissionRequest,
    metadata: &Metadata<'_>,
) -> bool {
    let lists = |key: &str, object: &ObjectMeta<'_>| {
        object.annotation(key).is_some_and(|names| names.split(',').any(|name| name.trim() == webhook))
    };
    match kind {
        WebhookKind::Mutating => {
            // A deletion has the stored object only.
            let judged = if request.object.is_some() { &metadata.object } else { &metadata.old_object };
            judged.as_ref().is_some_and(|object| lists(CAN_MUTATE, object))
        }
        WebhookKind::Validating => metadata.each().any(|object| lists(CAN_VALIDATE, object)),
    }
}
