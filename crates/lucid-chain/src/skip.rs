//! Permission to opt out of injection.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::keys;

/// Pods in which the annotation [`keys::SKIP_AUDIT`] takes effect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SkipPolicy {
    /// None.
    #[default]
    Never,
    /// All.
    Always,
    /// Pods that run under one of these service accounts, each written as `namespace/name`. Users who can create pods
    /// in a namespace can use any of its service accounts, so an entry trusts the whole namespace.
    ServiceAccounts(BTreeSet<String>),
}

impl SkipPolicy {
    pub(crate) fn allows(&self, namespace: &str, service_account: &str) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::ServiceAccounts(listed) => listed.contains(&format!("{namespace}/{service_account}")),
        }
    }
}

/// Reason why a pod with a trigger gets no chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The pod has the annotation [`keys::SKIP_AUDIT`] and may use it.
    Annotation,
}

impl SkipReason {
    /// Machine-readable identifier, as [`Warning::reason`](crate::Warning::reason).
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Annotation => "SkipAudit",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation => write!(f, "annotation {}: \"true\"", keys::SKIP_AUDIT),
        }
    }
}
