//! Sources of settings.

use std::fmt;

/// Source of a setting. The operator takes precedence over annotations, these over `auditors.yaml`, and these over
/// derived and built-in values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingSource {
    /// The operator's configuration.
    Operator,
    /// A pod annotation.
    Annotation,
    /// An annotation of the namespace.
    Namespace,
    /// The `defaults` of an `auditors.yaml`: those of the namespace or else the cluster.
    Catalogue,
    /// Derived from the pod's `restartPolicy`.
    RestartPolicy,
    /// Derived from the model, which is a native sidecar: auditors must start before it.
    NativeModel,
    /// Derived from the level that Pod Security admission enforces in the namespace.
    PodSecurity(&'static str),
    /// The built-in default.
    BuiltIn,
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator => f.write_str("operator configuration"),
            Self::Annotation => f.write_str("annotation"),
            Self::Namespace => f.write_str("annotation of the namespace"),
            Self::Catalogue => f.write_str("auditors.yaml"),
            Self::RestartPolicy => f.write_str("restartPolicy of the pod"),
            Self::NativeModel => f.write_str("the model, which is a native sidecar"),
            Self::PodSecurity(level) => write!(f, "Pod Security level {level} of the namespace"),
            Self::BuiltIn => f.write_str("built-in default"),
        }
    }
}
