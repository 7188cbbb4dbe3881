//! Kinds of webhooks: mutating or validating.

use std::fmt;

/// Kind of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookKind {
    /// May change objects; called one after the other (`MutatingWebhookConfiguration`).
    Mutating,
    /// Sees the object as it would be stored and only allows or denies (`ValidatingWebhookConfiguration`).
    Validating,
}

impl fmt::Display for WebhookKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mutating => "mutating",
            Self::Validating => "validating",
        })
    }
}
