//! What a user should hear about although the pod is admitted.

use std::{fmt, num::NonZeroU16};

use crate::{keys, patch::ANNOTATIONS_SIZE, text::Excerpt};

/// Something that planning or patching did not take as the user may have meant it.
///
/// Its `Display` is one line without control characters that names the key, what was found and
/// what is accepted: fit for an admission warning, a log line or an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// An annotation has a value that is not accepted; it counts as absent.
    InvalidAnnotation {
        /// Key of the annotation.
        key: &'static str,
        /// The value in quotes, cut and escaped.
        found: String,
        /// What is wrong and what is accepted.
        problem: String,
    },
    /// An annotation asks for something this version does not do.
    UnsupportedAnnotation {
        /// Key of the annotation.
        key: &'static str,
        /// Its value.
        value: &'static str,
        /// The values this version acts on.
        accepted: String,
    },
    /// The label [`keys::SECURED_LABEL`] has a value that means nothing.
    InvalidSecuredLabel {
        /// The value in quotes, cut and escaped.
        found: String,
    },
    /// The label [`keys::SECURED_LABEL`] says `"false"` while [`keys::AUDITORS`] asks for injection.
    SecuredLabelOverruled,
    /// A chain is written on a pod that carries no trigger.
    TriggerMissing,
    /// [`keys::SKIP_AUDIT`] is not allowed here.
    SkipNotAllowed,
    /// The name of an auditor is in use by an init or ephemeral container.
    NameTaken {
        /// The name that is in use.
        name: String,
        /// The name given instead.
        given: String,
    },
    /// Nothing tells where the model listens.
    ModelPortAssumed {
        /// The port that is taken for the model's.
        port: NonZeroU16,
    },
    /// An auditor's container is in the pod and no part of the chain.
    LeftoverAuditor {
        /// The container.
        name: String,
    },
    /// A container carried the name of a planned one and was another.
    ContainerReplaced {
        /// The name.
        name: String,
        /// Key of the container in which it differs.
        difference: String,
    },
    /// A container was planned before for other circumstances: another port was free, or the model listened elsewhere.
    ContainerReplanned {
        /// The name.
        name: String,
        /// Key of the container in which it differs.
        difference: String,
    },
    /// An application whose outbound traffic is to be audited sends it elsewhere.
    AuditorUrlKept {
        /// The application's container.
        container: String,
        /// The value of its `AUDITOR_URL`; `None` when that comes from a `valueFrom`.
        found: Option<String>,
        /// The address of the first auditor.
        expected: String,
    },
    /// With the annotation [`keys::STATUS`] the pod would have more annotations than the API server takes.
    StatusLeftOut {
        /// How many bytes all annotations would be.
        size: usize,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidAnnotation { key, found, problem } => {
                write!(f, "annotation {key} is ignored: found {found}, {problem}")
            }
            Self::UnsupportedAnnotation { key, value, accepted } => {
                write!(
                    f,
                    "annotation {key}: \"{value}\" is not supported by this version: accepted {accepted}"
                )
            }
            Self::InvalidSecuredLabel { found } => {
                write!(
                    f,
                    "label {} is ignored: found {found}, accepted \"true\" or \"false\"",
                    keys::SECURED_LABEL
                )
            }
            Self::SecuredLabelOverruled => write!(
                f,
                "label {}: \"false\" does not stop the injection that annotation {} asks for: remove the annotation",
                keys::SECURED_LABEL,
                keys::AUDITORS
            ),
            Self::TriggerMissing => write!(
                f,
                "annotation {} has no effect without the label {}: \"true\"; the pod gets no auditors",
                keys::AUDITOR_CHAIN,
                keys::SECURED_LABEL
            ),
            Self::SkipNotAllowed => write!(
                f,
                "annotation {}: \"true\" is not allowed here; the pod gets its auditors",
                keys::SKIP_AUDIT
            ),
            Self::NameTaken { name, given } => write!(
                f,
                "container name {name} is in use by an init or ephemeral container; the auditor is named {given}"
            ),
            Self::ModelPortAssumed { port } => write!(
                f,
                "no declared port tells where the model listens; {port} is assumed: set the annotation {}",
                keys::TARGET_PORT
            ),
            Self::LeftoverAuditor { name } => write!(
                f,
                "container {} is an auditor that is no part of the chain; nothing is forwarded to it: remove it",
                Excerpt(name)
            ),
            Self::ContainerReplaced { name, difference } => write!(
                f,
                "container {name} is replaced: it carries the name of an auditor and differs from it in {difference}"
            ),
            Self::ContainerReplanned { name, difference } => write!(
                f,
                "container {name} was planned before for other circumstances and is planned again: {difference} differs"
            ),
            Self::AuditorUrlKept { container, found, expected } => {
                let found =
                    found.as_ref().map_or_else(|| "valueFrom".to_owned(), |url| Excerpt(url).to_string());
                write!(
                    f,
                    "container {} sets AUDITOR_URL itself and is not audited: found {found}, expected \"{expected}\"",
                    Excerpt(container)
                )
            }
            Self::StatusLeftOut { size } => write!(
                f,
                "annotation {} is left out: with it the annotations would be {size} bytes, accepted at most {ANNOTATIONS_SIZE}",
                keys::STATUS
            ),
        }
    }
}
