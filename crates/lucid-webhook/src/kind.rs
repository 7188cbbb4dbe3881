//! What a webhook is: mutating or validating.

use std::fmt;

/// Whether a webhook may change the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WebhookKind {
    /// It may change the object, one webhook after the other (`MutatingWebhookConfiguration`).
    Mutating,
    /// It sees the object as it would be stored and only says yes or no (`ValidatingWebhookConfiguration`).
    Validating,
}

impl WebhookKind {
    /// `mutating` or `validating`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutating => "mutating",
            Self::Validating => "validating",
        }
    }
}

impl fmt::Display for WebhookKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
