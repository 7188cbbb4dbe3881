//! Triggers of injection.

use crate::{keys, pod::PodView};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trigger {
    SecuredLabel,
    /// The presence of the pod annotation [`keys::AUDITORS`], even with an invalid value.
    AuditorsAnnotation,
    /// The caller forces a chain with [`Inputs::forced`](crate::Inputs::forced); the pod has no trigger.
    Forced,
}

impl Trigger {
    /// Returns the trigger of `pod`; [`SecuredLabel`](Self::SecuredLabel) if it has both.
    pub(crate) fn from_pod(pod: &PodView<'_>) -> Option<Self> {
        if pod.label(keys::SECURED_LABEL) == Some(keys::TRUE) {
            Some(Self::SecuredLabel)
        } else {
            pod.annotation(keys::AUDITORS).map(|_| Self::AuditorsAnnotation)
        }
    }
}
