//! Settings with a fixed set of values.

use std::{collections::BTreeMap, fmt, str::FromStr};

use lucid_text::Excerpt;
use serde::{Deserialize, Serialize};

use crate::{error::Error, keys};

/// Reaction of auditors to a finding, passed to each of them as `LUCID_AUDIT_MODE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AuditMode {
    /// Block the request or answer.
    #[default]
    Enforce,
    /// Report the finding and never hold back the application.
    Observe,
}

/// Consequence of an error or a timeout of an auditor's judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnFailure {
    /// The text must not pass.
    Deny,
    /// The text may pass.
    Allow,
}

/// Direction of the traffic that passes through the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Direction {
    /// Calls from other pods and hosts to the model in the pod.
    #[default]
    Inbound,
    /// Calls from the application in the pod to a model.
    Outbound,
    /// Both directions, through one chain. The chain ends at the model that the application calls, so the model's
    /// port must be configured as for [`Outbound`](Self::Outbound): a port that receives calls is not enough.
    Both,
}

impl Direction {
    pub(crate) const fn covers_inbound(self) -> bool {
        matches!(self, Self::Inbound | Self::Both)
    }

    pub(crate) const fn covers_outbound(self) -> bool {
        matches!(self, Self::Outbound | Self::Both)
    }
}

/// Kind of container that auditors run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SidecarMode {
    /// Plain containers if the pod's `restartPolicy` is `Always`, native sidecars otherwise, so that a Job can
    /// complete. Also native sidecars if the model is one, because it starts before any plain container.
    #[default]
    Auto,
    /// Plain containers.
    Containers,
    /// Native sidecars: init containers with `restartPolicy: Always` (KEP-753).
    Native,
}

/// Method that directs traffic to the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Intercept {
    /// The kernel redirects traffic, by rules that the init container `lucid-init` installs.
    Redirect,
    /// Environment variables point clients to the chain.
    Env,
}

/// Reachability of a pod's TCP ports that are neither guarded nor listed in [`keys::OPEN_PORTS`], from the least strict
/// to the strictest. Needs [`Intercept::Redirect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum OtherPorts {
    #[default]
    Open,
    /// Connections from outside the pod are refused. Ports that probes and hooks of the kubelet call stay open.
    Closed,
}

impl OtherPorts {
    /// An invalid value counts as [`Closed`](Self::Closed), and the problem is returned.
    pub(crate) fn from_annotations(annotations: &BTreeMap<String, String>) -> (Self, Option<String>) {
        let Some(value) = annotations.get(keys::OTHER_PORTS) else { return (Self::Open, None) };
        match value.trim().parse() {
            Ok(found) => (found, None),
            Err(_) => {
                let (key, expected, found) = (keys::OTHER_PORTS, Self::EXPECTED, Excerpt(value));
                let problem =
                    format!("{key}: expected {expected}, found {found}; \"{}\" applies", Self::Closed);
                (Self::Closed, Some(problem))
            }
        }
    }
}

/// Pod annotations that pod authors may use in a namespace, from the strictest choice to the most permissive.
///
/// The administrator sets it on the namespace, with [`keys::POD_CHOICES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PodChoices {
    /// No annotation: the configuration of the cluster and the namespace applies.
    None,
    /// The chain only: [`keys::AUDITOR_CHAIN`] and [`keys::AUDITORS`].
    Chain,
    /// Not configured: every annotation except [`keys::KEEP_PRIVILEGES`].
    #[default]
    Unset,
    /// Every annotation.
    All,
}

impl PodChoices {
    /// An invalid value counts as [`None`](Self::None). If label and annotation differ, the stricter value applies.
    pub(crate) fn from_namespace(
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> (Self, Option<String>) {
        let mut problem = None;
        let values = [labels, annotations].into_iter().filter_map(|map| map.get(keys::POD_CHOICES));
        let choices = values.map(|value| {
            value.trim().parse().unwrap_or_else(|error: Error| {
                problem = Some(format!("{}: {error}; \"{}\" applies", keys::POD_CHOICES, Self::None));
                Self::None
            })
        });
        let default = if requires_chain(labels, annotations) { Self::None } else { Self::Unset };
        (choices.min().unwrap_or(default), problem)
    }

    /// Returns `true` if the pod annotation `key` takes effect. [`keys::OTHER_PORTS`] always does, because a pod can
    /// only be stricter than its namespace.
    pub(crate) fn allows(self, key: &str) -> bool {
        match self {
            _ if key == keys::OTHER_PORTS => true,
            Self::None => false,
            Self::Chain => matches!(key, keys::AUDITOR_CHAIN | keys::AUDITORS),
            Self::Unset => key != keys::KEEP_PRIVILEGES,
            Self::All => true,
        }
    }
}

/// Evaluates [`keys::REQUIRE_CHAIN`]. Every value except `false` and the empty string counts as `true`, so that a
/// misspelled `True` does not disable the requirement.
pub(crate) fn requires_chain(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> bool {
    let values = [labels, annotations].into_iter().filter_map(|map| map.get(keys::REQUIRE_CHAIN));
    values.into_iter().any(|value| !matches!(value.trim(), "" | "false"))
}

/// Implements the conversions between the values of a setting and their texts. Values after `;` cannot be set.
macro_rules! impl_text {
    ($($type:ident, $expected:literal {
        $($value:ident = $text:literal),+ $(; $($unset:ident = $unset_text:literal),+)?
    })+) => {$(
        impl $type {
            pub(crate) const EXPECTED: &'static str = $expected;

            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                    $($(Self::$unset => $unset_text,)+)?
                }
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                match text {
                    $($text => Ok(Self::$value),)+
                    _ => Err(Error::new(format!("expected {}, found {}", Self::EXPECTED, Excerpt(text)))),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+};
}

impl_text! {
    AuditMode, r#""enforce" or "observe""# { Enforce = "enforce", Observe = "observe" }
    OnFailure, r#""deny" or "allow""# { Deny = "deny", Allow = "allow" }
    Direction, r#""inbound", "outbound" or "both""# { Inbound = "inbound", Outbound = "outbound", Both = "both" }
    SidecarMode, r#""auto", "containers" or "native""# { Auto = "auto", Containers = "containers", Native = "native" }
    Intercept, r#""redirect" or "env""# { Redirect = "redirect", Env = "env" }
    OtherPorts, r#""open" or "closed""# { Open = "open", Closed = "closed" }
    PodChoices, r#""none", "chain" or "all""# { None = "none", Chain = "chain", All = "all"; Unset = "unset" }
}
