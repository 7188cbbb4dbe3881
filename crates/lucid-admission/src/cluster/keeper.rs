//! Actions on running pods without the planned chain: settings of the namespaces and of `lucid-policy`. No I/O.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Action of a keeper on running pods whose chain is not the planned one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeeperAction {
    /// Only reports them.
    #[default]
    Report,
    /// Changes the images of auditors in the running pods.
    Update,
    /// Evicts pods of controllers, which create others.
    Evict,
    /// Restarts the Deployments, StatefulSets and DaemonSets.
    Rollout,
}

impl KeeperAction {
    const ALL: [Self; 4] = [Self::Report, Self::Update, Self::Evict, Self::Rollout];

    /// Name, as in the namespace's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Update => "update",
            Self::Evict => "evict",
            Self::Rollout => "rollout",
        }
    }
}

impl fmt::Display for KeeperAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for KeeperAction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|action| action.as_str() == text);
        found.ok_or_else(|| format!("expected report, update, evict or rollout, found {text:?}"))
    }
}

/// Defaults of `lucid-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeeperSettings {
    /// Action in namespaces without the label.
    pub action: KeeperAction,
    /// Maximum number of actions per minute, in the whole cluster.
    pub rate: u32,
}

impl Default for KeeperSettings {
    fn default() -> Self {
        Self { action: KeeperAction::Report, rate: 10 }
    }
}
