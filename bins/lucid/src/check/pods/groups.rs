//! Groups pods with the same result.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use lucid_keeper::{State, Workload};

use crate::check::report::{Check, PodGroup, Status};

/// Maximum number of distinct groups; further pods are counted together.
const LIMIT: usize = 5_000;

/// Result, namespace, owner, reason and action.
type Key = (State, String, String, String, String);

#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    fine: u64,
    groups: BTreeMap<Key, (u64, String)>,
}

impl Groups {
    pub(super) fn add(
        &mut self,
        namespace: &str,
        metadata: &ObjectMeta,
        state: State,
        reason: String,
        action: Option<String>,
    ) {
        match state {
            State::Audited | State::NotReady => {
                self.fine += 1;
                return;
            }
            _ => {}
        }
        let owner = Workload::of(metadata).map_or_else(String::new, |owner| owner.to_string());
        let action = action.unwrap_or_else(|| match state {
            State::Missing | State::AssumedPort | State::Stale | State::Altered => restart(namespace, &owner),
            _ => String::new(),
        });
        let name = metadata.name.as_deref().unwrap_or_default();
        self.count((state, namespace.to_owned(), owner, reason, action), 1, name);
    }

    fn count(&mut self, key: Key, pods: u64, example: &str) {
        let key = if self.groups.len() < LIMIT || self.groups.contains_key(&key) {
            key
        } else {
            (key.0, String::new(), String::new(), "further owners and reasons".to_owned(), String::new())
        };
        self.groups.entry(key).or_insert_with(|| (0, example.to_owned())).0 += pods;
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.fine += other.fine;
        // Largest first, so that the limit affects small groups only.
        let mut groups: Vec<_> = other.groups.into_iter().collect();
        groups.sort_by_key(|(_, (pods, _))| std::cmp::Reverse(*pods));
        for (key, (pods, example)) in groups {
            self.count(key, pods, &example);
        }
    }

    pub(super) fn checks(self) -> Vec<Check> {
        use State::{Altered, AssumedPort, Ignored, Missing, Skipped, Stale, Unknown};

        let fine = format!("all pods that request a chain have one; {} have the current chain", self.fine);
        let mut groups: BTreeMap<State, Vec<PodGroup>> = BTreeMap::new();
        for ((state, namespace, owner, reason, action), (pods, example)) in self.groups {
            let group = PodGroup { namespace, owner, pods, example, reason, action };
            groups.entry(state).or_default().push(group);
        }
        let mut checks = Vec::new();
        for (state, name, status, text) in [
            (Missing, "pods-without-chain", Status::Failed, "pods that request a chain and have none"),
            (
                AssumedPort,
                "assumed-ports",
                Status::Failed,
                "pods whose model may listen on an unguarded port",
            ),
            (Stale, "stale-chains", Status::Failed, "pods with an outdated chain"),
            (Altered, "wrong-chains", Status::Failed, "pods with a chain that is incomplete or replaced"),
            (Skipped, "skipped-pods", Status::Ok, "pods that opt out and are allowed to"),
            (Ignored, "pods-not-asking", Status::Warning, "pods whose request for a chain has no effect"),
            (Unknown, "pods-unknown", Status::Unknown, "pods that could not be evaluated"),
        ] {
            if let Some(pods) = groups.remove(&state) {
                let count: u64 = pods.iter().map(|group| group.pods).sum();
                checks.push(Check { pods, ..Check::new(name, status, format!("{text}: {count}")) });
                continue;
            }
            let none = match state {
                Missing => &fine,
                Stale => "no pod has an outdated chain",
                Altered => "no chain is incomplete or replaced",
                Skipped => "no pod opts out",
                // Reported only with pods.
                _ => continue,
            };
            checks.push(Check::ok(name, none));
        }
        checks
    }
}

/// Suggests how to recreate the pods: a chain is injected at creation only.
fn restart(namespace: &str, owner: &str) -> String {
    match owner.split_once('/') {
        Some(("deployment" | "statefulset" | "daemonset", _)) => {
            format!("kubectl -n {namespace} rollout restart {owner}")
        }
        Some(("cronjob", _)) => "the next run creates new pods".to_owned(),
        Some(("node", _)) => "run it as a DaemonSet".to_owned(),
        Some(("replicaset" | "replicationcontroller", _)) => "delete the pods; they are recreated".to_owned(),
        Some(_) => format!("recreate {owner}"),
        None => "delete and recreate it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_are_grouped_and_groups_are_bounded() {
        let mut groups = Groups::default();
        let mut add = |owner: String, pod: &str| {
            let metadata = json!({"name": pod, "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "uid": "1", "controller": true}]});
            let metadata = serde_json::from_value(metadata).unwrap();
            groups.add("shop", &metadata, State::Stale, "image differs".to_owned(), None);
        };
        for pod in 0..10_000 {
            add("web".to_owned(), &format!("web-{pod}"));
        }
        for owner in 0..10_000 {
            add(owner.to_string(), "p");
        }
        let mut all = Groups::default();
        all.merge(groups);
        let checks = all.checks();
        let stale = checks.iter().find(|check| check.check == "stale-chains").unwrap();
        assert_eq!(stale.status, Status::Failed);
        assert!(stale.pods.len() <= LIMIT + 1, "{}", stale.pods.len());
        assert_eq!(stale.pods.iter().map(|group| group.pods).sum::<u64>(), 20_000);
        let web = stale.pods.iter().find(|group| group.owner == "deployment/web").unwrap();
        assert_eq!((web.pods, web.example.as_str()), (10_000, "web-0"));
    }
}
