//! Which pods may ask for no injection.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::keys;

/// Where the annotation [`keys::SKIP_AUDIT`] is honoured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum SkipPolicy {
    /// Nowhere.
    #[default]
    Never,
    /// In every pod.
    Always,
    /// In pods that run under one of these service accounts, each as `namespace/name`. Whoever may create pods in a
    /// namespace may run them under any of its service accounts: to list one trusts its whole namespace.
    ServiceAccounts(BTreeSet<String>),
}

impl SkipPolicy {
    /// Whether a pod of `namespace` that runs under `service_account` may ask for no injection.
    pub fn allows(&self, namespace: &str, service_account: &str) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::ServiceAccounts(listed) => listed.contains(&format!("{namespace}/{service_account}")),
        }
    }
}

/// Why a pod that asks for a chain gets none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The annotation [`keys::SKIP_AUDIT`], where it is allowed.
    Annotation,
}

impl SkipReason {
    /// The same for machines, as [`Warning::reason`](crate::Warning::reason).
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
