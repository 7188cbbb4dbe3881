//! Metadata and phase of a pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

#[derive(Deserialize)]
pub(in super::super) struct PodMeta {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
struct PodStatus {
    phase: Option<String>,
}

impl PodMeta {
    pub(super) fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|time| time.0)
    }

    pub(super) fn is_live(&self) -> bool {
        let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
        self.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

/// Returns the owner in kubectl syntax, or an empty string for a pod without a controller.
pub(super) fn owner(metadata: &ObjectMeta) -> String {
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let labels = metadata.labels.as_ref();
    owner.map_or_else(String::new, |owner| known_owner(&owner.kind, &owner.name, labels))
}

/// Returns the owner that users know: the Deployment of a ReplicaSet, the CronJob of a Job.
fn known_owner(kind: &str, name: &str, labels: Option<&BTreeMap<String, String>>) -> String {
    if kind == "ReplicaSet"
        && let Some(deployment) = labels
            .and_then(|labels| labels.get("pod-template-hash"))
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
            assert_eq!(known_owner(kind, name, Some(&labels)), expected);
        }
    }
}
