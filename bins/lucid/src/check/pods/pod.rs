//! Parses the metadata and phase of a pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Deserialize)]
pub(in super::super) struct Meta<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: Option<String>,
    creation_timestamp: Option<Timestamp>,
    deletion_timestamp: Option<Timestamp>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    /// Kept unparsed: large and rarely needed.
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
    controller: Option<bool>,
}

#[derive(Deserialize)]
struct PodStatus {
    phase: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    time: Option<Timestamp>,
    fields_v1: Option<Value>,
}

impl Meta<'_> {
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp
    }

    /// Returns `true` unless the pod is terminated or being deleted.
    pub(super) fn is_live(&self) -> bool {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        self.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
    }

    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        self.metadata.labels.clone().unwrap_or_default()
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the owner in kubectl syntax, or an empty string for a pod without a controller.
    pub(super) fn owner(&self) -> String {
        let owners = self.metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
        owner.map_or_else(String::new, |found| owner_name(found, self.metadata.labels.as_ref()))
    }

    /// Returns the time of the last write to a label or annotation, according to `managedFields`.
    pub(super) fn written(&self, field: &str, key: &str) -> Option<Timestamp> {
        let entries: Vec<ManagedFields> = serde_json::from_str(self.metadata.managed_fields?.get()).ok()?;
        let (field, key) = (format!("f:{field}"), format!("f:{key}"));
        let wrote = |entry: &&ManagedFields| {
            entry.fields_v1.as_ref().is_some_and(|it| it["f:metadata"][&field].get(&key).is_some())
        };
        entries.iter().filter(wrote).filter_map(|entry| entry.time).max()
    }
}

fn owner_name(owner: &OwnerReference, labels: Option<&BTreeMap<String, String>>) -> String {
    self::owner(&owner.kind, &owner.name, labels.unwrap_or(&BTreeMap::new()))
}

/// Returns the owner that users know: the Deployment of a ReplicaSet, the CronJob of a Job.
pub(super) fn owner(kind: &str, name: &str, labels: &BTreeMap<String, String>) -> String {
    if kind == "ReplicaSet"
        && let Some(deployment) = labels
            .get("pod-template-hash")
            .and_then(|hash| name.strip_suffix(hash.as_str())?.strip_suffix('-'))
    {
        return format!("deployment/{deployment}");
    }
    if kind == "Job"
        && let Some((cron_job, minutes)) = name.rsplit_once('-')
        && minutes.len() >= 8
        && minutes.bytes().all(|byte| byte.is_ascii_digit())
    {
        return format!("cronjob/{cron_job}");
    }
    format!("{}/{name}", kind.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_those_that_users_know() {
        let labels = BTreeMap::from([("pod-template-hash".to_owned(), "7d9f".to_owned())]);
        for (kind, name, expected) in [
            ("ReplicaSet", "web-7d9f", "deployment/web"),
            ("ReplicaSet", "web-other", "replicaset/web-other"),
            ("StatefulSet", "db", "statefulset/db"),
            ("Job", "nightly-29384756", "cronjob/nightly"),
            ("Job", "once-1", "job/once-1"),
        ] {
            assert_eq!(owner(kind, name, &labels), expected);
        }
    }
}
