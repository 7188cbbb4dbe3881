//! What a container may do beyond its own files, as its security context says.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::pod::{List, Text};

/// The fields of a container's `securityContext` that can lead around a chain; everything else is skipped over. A value of
/// another type, which no API server takes, counts as left out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Privileges<'a> {
    #[serde(default, deserialize_with = "number")]
    run_as_user: Option<i64>,
    #[serde(default, deserialize_with = "boolean")]
    run_as_non_root: Option<bool>,
    #[serde(default, deserialize_with = "boolean")]
    privileged: Option<bool>,
    #[serde(default, deserialize_with = "boolean")]
    allow_privilege_escalation: Option<bool>,
    #[serde(borrow)]
    proc_mount: Option<Text<'a>>,
    #[serde(borrow)]
    capabilities: Option<Capabilities<'a>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Capabilities<'a> {
    #[serde(borrow)]
    add: Option<List<Text<'a>>>,
    #[serde(borrow)]
    drop: Option<List<Text<'a>>>,
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(<&RawValue>::deserialize(deserializer)?.get().parse().ok())
}

fn boolean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(<&RawValue>::deserialize(deserializer)?.get().parse().ok())
}

impl Privileges<'_> {
    /// `runAsUser`; the pod's own holds where it is left out.
    pub fn run_as_user(&self) -> Option<i64> {
        self.run_as_user
    }

    /// `runAsNonRoot`; the pod's own holds where it is left out.
    pub fn run_as_non_root(&self) -> Option<bool> {
        self.run_as_non_root
    }

    /// `privileged`.
    pub fn is_privileged(&self) -> bool {
        self.privileged.unwrap_or_default()
    }

    /// `allowPrivilegeEscalation`.
    pub fn allows_privilege_escalation(&self) -> Option<bool> {
        self.allow_privilege_escalation
    }

    /// `procMount`; `Default` where it is left out.
    pub fn proc_mount(&self) -> &str {
        self.proc_mount.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("Default")
    }

    /// `capabilities.add`, without the prefix `CAP_` that container runtimes take too.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        let added = self.capabilities.iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        added.map(|name| bare(name))
    }

    /// Number of names in `capabilities.add` and `capabilities.drop`.
    pub(crate) fn capabilities(&self) -> usize {
        let lists = self.capabilities.iter().flat_map(|it| [&it.add, &it.drop]);
        lists.flatten().flatten().count()
    }

    /// Whether `capabilities.drop` names this capability or all of them. Names with the prefix `CAP_` do not count: containerd
    /// adds the prefix once more, and drops nothing.
    pub fn drops(&self, capability: &str) -> bool {
        let dropped = self.capabilities.iter().flat_map(|capabilities| capabilities.drop.iter().flatten());
        dropped.map(|name| &**name).any(|name| is_dropped(name, capability))
    }
}

/// Returns `true` if `name` in `capabilities.drop` drops the capability.
pub(crate) fn is_dropped(name: &str, capability: &str) -> bool {
    name.eq_ignore_ascii_case(capability) || name.eq_ignore_ascii_case("ALL")
}

/// The name of a capability without the prefix `CAP_`.
pub(crate) fn bare(name: &str) -> &str {
    match name.get(..4) {
        Some(prefix) if prefix.eq_ignore_ascii_case("CAP_") => &name[4..],
        _ => name,
    }
}
