//! Privileges in security contexts.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::pod::{List, Text};

/// The fields of a `securityContext` that can allow a container to bypass a chain; other fields are ignored. A value
/// of the wrong type, which the API server rejects, counts as absent.
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
    #[serde(borrow)]
    se_linux_options: Option<&'a RawValue>,
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
    /// JSON of `seLinuxOptions`.
    pub(crate) fn se_linux_options(&self) -> Option<&str> {
        self.se_linux_options.map(RawValue::get)
    }

    /// `runAsUser`; if absent, the pod's value applies.
    pub fn run_as_user(&self) -> Option<i64> {
        self.run_as_user
    }

    /// `runAsNonRoot`; if absent, the pod's value applies.
    pub fn run_as_non_root(&self) -> Option<bool> {
        self.run_as_non_root
    }

    /// `privileged`; `false` if absent.
    pub fn is_privileged(&self) -> bool {
        self.privileged.unwrap_or_default()
    }

    /// `allowPrivilegeEscalation`.
    pub fn allows_privilege_escalation(&self) -> Option<bool> {
        self.allow_privilege_escalation
    }

    /// `procMount`; `Default` if absent.
    pub fn proc_mount(&self) -> &str {
        self.proc_mount.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("Default")
    }

    /// `capabilities.add`, without the prefix `CAP_`, which container runtimes also accept.
    pub fn added(&self) -> impl Iterator<Item = &str> {
        let added = self.capabilities.iter().flat_map(|capabilities| capabilities.add.iter().flatten());
        added.map(|name| without_prefix(name))
    }

    /// Number of names in `capabilities.add` and `capabilities.drop`.
    pub(crate) fn capabilities(&self) -> usize {
        let lists = self.capabilities.iter().flat_map(|it| [&it.add, &it.drop]);
        lists.flatten().flatten().count()
    }

    /// Returns `true` if `capabilities.drop` names this capability or `ALL`. Names with the prefix `CAP_` do not
    /// count: containerd prepends the prefix again and drops nothing.
    pub fn drops(&self, capability: &str) -> bool {
        let dropped = self.capabilities.iter().flat_map(|capabilities| capabilities.drop.iter().flatten());
        dropped.map(|name| &**name).any(|name| is_dropped(name, capability))
    }
}

/// Returns `true` if `name` in `capabilities.drop` drops the capability.
pub(crate) fn is_dropped(name: &str, capability: &str) -> bool {
    name.eq_ignore_ascii_case(capability) || name.eq_ignore_ascii_case("ALL")
}

/// Strips the prefix `CAP_` from the name of a capability.
pub(crate) fn without_prefix(name: &str) -> &str {
    match name.get(..4) {
        Some(prefix) if prefix.eq_ignore_ascii_case("CAP_") => &name[4..],
        _ => name,
    }
}
