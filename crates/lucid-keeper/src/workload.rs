//! The workload that a pod belongs to.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use lucid_admission::is_plausible_owner;
use serde::Serialize;

/// The owner of a pod that users know: the Deployment of a ReplicaSet, the CronJob of a Job.
///
/// It follows from names and labels, which the pod's author chooses. The `Display` form is that of kubectl, such as
/// `deployment/web`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Workload {
    /// Kind in lower case.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl Workload {
    /// Returns the workload of a pod with this metadata; `None` without a controller.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let owner = controller(metadata)?;
        Some(Self::known(&owner.kind, &owner.name, metadata.labels.as_ref()))
    }

    fn known(kind: &str, name: &str, labels: Option<&BTreeMap<String, String>>) -> Self {
        let of = |kind: &str, name: &str| Self { kind: kind.to_owned(), name: name.to_owned() };
        if kind == "ReplicaSet"
            && let Some(deployment) = labels
                .and_then(|labels| labels.get("pod-template-hash"))
                .and_then(|hash| name.strip_suffix(hash.as_str())?.strip_suffix('-'))
        {
            return of("deployment", deployment);
        }
        if kind == "Job"
            && let Some((cron_job, minutes)) = name.rsplit_once('-')
            && minutes.len() >= 8
            && minutes.bytes().all(|byte| byte.is_ascii_digit())
        {
            return of("cronjob", cron_job);
        }
        of(&kind.to_lowercase(), name)
    }
}

/// Returns the controller of a pod with this metadata, if such an object can exist.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).filter(|owner| is_plausible_owner(owner))
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
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
            assert_eq!(Workload::known(kind, name, Some(&labels)).to_string(), expected);
        }
    }
}
