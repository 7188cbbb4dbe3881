//! Whether a pod asks for a chain.

use crate::{keys, pod::PodView};

/// What asked for the chain of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// The pod label [`keys::SECURED_LABEL`] with the value `"true"`.
    SecuredLabel,
    /// The presence of the pod annotation [`keys::AUDITORS`], even with an invalid value.
    AuditorsAnnotation,
    /// Nothing in the pod: whoever plans asked for it, by [`Inputs::forced`](crate::Inputs::forced).
    Forced,
}

impl Trigger {
    /// The trigger `pod` carries; the label is named first when there are both.
    pub fn of(pod: &PodView<'_>) -> Option<Self> {
        if pod.label(keys::SECURED_LABEL) == Some(keys::TRUE) {
            Some(Self::SecuredLabel)
        } else {
            pod.annotation(keys::AUDITORS).map(|_| Self::AuditorsAnnotation)
        }
    }
}
