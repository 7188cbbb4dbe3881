//! Settings with a closed set of values.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use snafu::Snafu;

use crate::{keys, text::Excerpt};

/// What auditors do with what they find; handed to each of them as `LUCID_AUDIT_MODE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AuditMode {
    /// Stop what is found.
    #[default]
    Enforce,
    /// Report what is found and never hold the application back.
    Observe,
}

impl AuditMode {
    /// The accepted spellings, for messages.
    pub const ACCEPTED: &'static str = r#""enforce" or "observe""#;

    /// The value as users write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

/// Which traffic the chain stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Direction {
    /// Calls from outside to the model in the pod.
    #[default]
    Inbound,
    /// Calls of the application in the pod to a model.
    Outbound,
    /// Both of them, through one chain. It ends at the model that the application calls, so the model's port has to be
    /// told as for [`Outbound`](Self::Outbound): see [`ModelPortSource`](crate::ModelPortSource).
    Both,
}

impl Direction {
    /// The accepted spellings, for messages.
    pub const ACCEPTED: &'static str = r#""inbound", "outbound" or "both""#;

    /// The value as users write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
            Self::Both => "both",
        }
    }

    /// Whether calls from outside go through the chain.
    pub const fn covers_inbound(self) -> bool {
        matches!(self, Self::Inbound | Self::Both)
    }

    /// Whether applications are pointed at the chain.
    pub const fn covers_outbound(self) -> bool {
        matches!(self, Self::Outbound | Self::Both)
    }
}

/// What kind of containers auditors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SidecarMode {
    /// Plain containers in a pod whose `restartPolicy` is `Always`, native sidecars in any other: a Job completes only
    /// with these. Native ones too where the model is a native sidecar, for it starts before any plain container.
    #[default]
    Auto,
    /// Plain containers.
    Containers,
    /// Native sidecars: init containers with `restartPolicy: Always` (KEP-753).
    Native,
}

impl SidecarMode {
    /// The accepted spellings, for messages.
    pub const ACCEPTED: &'static str = r#""auto", "containers" or "native""#;

    /// The value as users write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Containers => "containers",
            Self::Native => "native",
        }
    }
}

/// How traffic comes to the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Intercept {
    /// The kernel redirects it, by rules that the init container `lucid-init` installs.
    Redirect,
    /// Clients are told where to go by environment variables.
    Env,
}

impl Intercept {
    /// The accepted spellings, for messages.
    pub const ACCEPTED: &'static str = r#""redirect" or "env""#;

    /// The value as users write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::Env => "env",
        }
    }
}

/// Annotations by which the authors of pods may choose, from none to all of them.
///
/// The administrator sets it on the namespace, by [`keys::POD_CHOICES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PodChoices {
    /// The configuration of the cluster and the namespace decides everything.
    None,
    /// Pods choose their chain, by [`keys::AUDITOR_CHAIN`] and [`keys::AUDITORS`].
    Chain,
    /// The administrator says nothing: every annotation counts but [`keys::KEEP_PRIVILEGES`].
    #[default]
    Unset,
    /// Every annotation counts.
    All,
}

impl PodChoices {
    /// The accepted spellings, for messages.
    pub const ACCEPTED: &'static str = r#""none", "chain" or "all""#;

    /// The value as users write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Chain => "chain",
            Self::Unset => "unset",
            Self::All => "all",
        }
    }

    /// The value where the administrator sets none.
    pub const fn default_of(requires_chain: bool) -> Self {
        if requires_chain { Self::None } else { Self::Unset }
    }

    /// The value of a namespace with these labels and annotations, and a problem if it is invalid.
    ///
    /// An invalid value counts as [`None`](Self::None). The smaller value counts where label and annotation differ.
    pub fn of_namespace(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> (Self, Option<String>) {
        let mut problem = None;
        let values = [labels, annotations].into_iter().filter_map(|map| map.get(keys::POD_CHOICES));
        let choices = values.map(|value| {
            value.trim().parse().unwrap_or_else(|error: ModeError| {
                problem = Some(format!("{}: {error}; \"{}\" applies", keys::POD_CHOICES, Self::None));
                Self::None
            })
        });
        let choices = choices.min();
        (choices.unwrap_or_else(|| Self::default_of(requires_chain(labels, annotations))), problem)
    }

    /// Returns whether the pod annotation `key` counts.
    pub fn allows(self, key: &str) -> bool {
        match self {
            Self::None => false,
            Self::Chain => matches!(key, keys::AUDITOR_CHAIN | keys::AUDITORS),
            Self::Unset => key != keys::KEEP_PRIVILEGES,
            Self::All => true,
        }
    }
}

/// Returns `true` if a namespace with these labels and annotations requires a chain of every pod ([`keys::REQUIRE_CHAIN`]).
/// Every value but `false` and the empty one counts as `true`: a misspelt `True` must not open the namespace.
pub fn requires_chain(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> bool {
    let values = [labels, annotations].into_iter().filter_map(|map| map.get(keys::REQUIRE_CHAIN));
    values.into_iter().any(|value| !matches!(value.trim(), "" | "false"))
}

/// A text is none of a setting's values.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
#[snafu(display("found {}, accepted {accepted}", Excerpt(found)))]
pub struct ModeError {
    found: String,
    accepted: &'static str,
}

impl FromStr for AuditMode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        [Self::Enforce, Self::Observe]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| ModeError { found: text.to_owned(), accepted: Self::ACCEPTED })
    }
}

impl FromStr for Direction {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        [Self::Inbound, Self::Outbound, Self::Both]
            .into_iter()
            .find(|direction| direction.as_str() == text)
            .ok_or_else(|| ModeError { found: text.to_owned(), accepted: Self::ACCEPTED })
    }
}

impl FromStr for SidecarMode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        [Self::Auto, Self::Containers, Self::Native]
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or_else(|| ModeError { found: text.to_owned(), accepted: Self::ACCEPTED })
    }
}

impl FromStr for Intercept {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        [Self::Redirect, Self::Env]
            .into_iter()
            .find(|intercept| intercept.as_str() == text)
            .ok_or_else(|| ModeError { found: text.to_owned(), accepted: Self::ACCEPTED })
    }
}

impl FromStr for PodChoices {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, ModeError> {
        [Self::None, Self::Chain, Self::All]
            .into_iter()
            .find(|choices| choices.as_str() == text)
            .ok_or_else(|| ModeError { found: text.to_owned(), accepted: Self::ACCEPTED })
    }
}

impl fmt::Display for PodChoices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for AuditMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for SidecarMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Intercept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
