//! What Pod Security admission lets into a namespace.

use std::{collections::BTreeMap, fmt};

use crate::keys;

/// The [level](https://kubernetes.io/docs/concepts/security/pod-security-standards/) that a namespace enforces, in the
/// order of strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[non_exhaustive]
pub enum PodSecurity {
    /// Everything is let in.
    #[default]
    Privileged,
    /// What is known to raise privileges is refused.
    Baseline,
    /// What is not hardened is refused.
    Restricted,
}

impl PodSecurity {
    /// The level of a namespace with these labels: what [`keys::POD_SECURITY_ENFORCE`] says. A text that is no level
    /// counts as `restricted`, as Pod Security admission takes it.
    ///
    /// Without the label it is `privileged`, which is what the API server takes unless its configuration says otherwise.
    pub fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        labels.get(keys::POD_SECURITY_ENFORCE).map_or(Self::Privileged, |level| Self::of_label(level))
    }

    /// The level that a value of [`keys::POD_SECURITY_ENFORCE`] means.
    pub fn of_label(level: &str) -> Self {
        match level {
            "privileged" => Self::Privileged,
            "baseline" => Self::Baseline,
            _ => Self::Restricted,
        }
    }

    /// The value as users write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    /// Whether a container with the capability NET_ADMIN is refused.
    pub const fn refuses_net_admin(self) -> bool {
        !matches!(self, Self::Privileged)
    }
}

impl fmt::Display for PodSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
