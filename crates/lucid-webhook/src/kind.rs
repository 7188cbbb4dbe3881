//! The two kinds of admission webhooks.

use std::fmt;

/// Whether a webhook may change the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookKind {
    /// Asked first, one after the other; may change the object (`MutatingWebhookConfiguration`).
    Mutating,
    /// Asked afterwards, all at once; may only refuse (`ValidatingWebhookConfiguration`).
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
