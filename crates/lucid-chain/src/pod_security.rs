//! Pod Security admission levels.

use std::{collections::BTreeMap, fmt};

use crate::keys;

/// [Level](https://kubernetes.io/docs/concepts/security/pod-security-standards/) that a namespace enforces, from the
/// most permissive to the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum PodSecurity {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

impl PodSecurity {
    /// Returns the level from the namespace label `pod-security.kubernetes.io/enforce`. An unknown value counts as
    /// `restricted`, as in Pod Security admission.
    ///
    /// Without the label, the level is `privileged`, the default of the API server. The configuration of the
    /// admission plugin can set another default, which is not visible here.
    pub(crate) fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        labels.get(keys::POD_SECURITY_ENFORCE).map_or(Self::Privileged, |level| Self::from_label(level))
    }

    /// Parses a value of `pod-security.kubernetes.io/enforce`; an unknown value counts as `restricted`.
    fn from_label(level: &str) -> Self {
        match level {
            "privileged" => Self::Privileged,
            "baseline" => Self::Baseline,
            _ => Self::Restricted,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }

    pub(crate) const fn refuses_net_admin(self) -> bool {
        !matches!(self, Self::Privileged)
    }
}

impl fmt::Display for PodSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
