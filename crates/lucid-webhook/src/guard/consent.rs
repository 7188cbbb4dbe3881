//! Consent of objects to webhooks, by annotation.

use super::Scope;
use super::metadata::{Metadata, ObjectMeta};
use crate::kind::WebhookKind;
use crate::review::AdmissionRequest;

/// Annotation of an object: names of the mutating webhooks that may change it. A list in JSON or YAML, or separated by
/// commas; names such as `label.example.com` may be shortened to `label`.
const CAN_MUTATE: &str = "canMutate";
/// Annotation of an object: names of the validating webhooks that may evaluate it, as in `canMutate`.
const CAN_VALIDATE: &str = "canValidate";

/// Returns [`Scope::Inside`] if the object consents to `webhook`, otherwise [`Scope::NoConsent`].
///
/// For a mutating webhook, the object in the request has to consent. For a validating one, the stored object suffices:
/// otherwise an update could bypass validation by withdrawing its consent.
pub(crate) fn consent(
    webhook: &str,
    kind: WebhookKind,
    request: &AdmissionRequest,
    metadata: &Metadata,
) -> Scope {
    let (keys, objects) = match kind {
        WebhookKind::Mutating => {
            // DELETE has the stored object only.
            let object = if request.object.is_some() { &metadata.object } else { &metadata.old_object };
            ([CAN_MUTATE, "lucid.computing/can-mutate"], [object, &None])
        }
        WebhookKind::Validating => {
            ([CAN_VALIDATE, "lucid.computing/can-validate"], [&metadata.object, &metadata.old_object])
        }
    };
    let annotation = |object: &'_ ObjectMeta| keys.map(|key| Some((key, object.annotation(key)?.to_owned())));
    let annotations: Vec<_> = objects.into_iter().flatten().flat_map(annotation).flatten().collect();
    if annotations.iter().any(|(_, value)| lists(value, webhook)) {
        return Scope::Inside;
    }
    let problem = annotations.iter().find_map(|(key, value)| {
        let quote = value.chars().find(|character| TYPOGRAPHIC_QUOTES.contains(character))?;
        Some(format!("annotation {key} contains the typographic quote {quote}; expected \" or '"))
    });
    Scope::NoConsent { problem }
}

const TYPOGRAPHIC_QUOTES: &[char] = &['“', '”', '„', '‟', '‘', '’', '‚', '‛', '«', '»'];

/// Returns `true` if the list `value` has the name of the webhook or its first label. Names have no characters that a
/// quoted text would escape.
fn lists(value: &str, webhook: &str) -> bool {
    let value = value.trim();
    let list = value.strip_prefix('[').and_then(|value| value.strip_suffix(']')).unwrap_or(value);
    let short = webhook.split('.').next();
    list.split([',', '\n']).any(|name| {
        let name = name.trim();
        let name = name.strip_prefix("- ").unwrap_or(name).trim();
        let unquoted = |quote: char| name.strip_prefix(quote)?.strip_suffix(quote);
        let name = unquoted('"').or_else(|| unquoted('\'')).unwrap_or(name);
        name == webhook || Some(name) == short
    })
}
