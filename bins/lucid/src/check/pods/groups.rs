//! Groups pods with the same result.

use std::collections::BTreeMap;

use super::evaluate::ChainState;
use super::pod::Meta;
use crate::check::report::{Check, PodGroup, Status};

/// Maximum number of distinct groups; further pods are counted together.
const LIMIT: usize = 5_000;

/// Result that the pods of a group share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    WithoutChain,
    NotAsking,
    Skipped,
    Stale,
    Wrong,
    Unknown,
}

/// Kind, namespace, owner, reason and action.
type Key = (Kind, String, String, String, String);

/// Number of pods in each group, with the name of one of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    fine: u64,
    groups: BTreeMap<Key, (u64, String)>,
}

impl Groups {
    pub(super) fn add(&mut self, namespace: &str, meta: &Meta<'_>, state: ChainState) {
        let (kind, reason) = match state {
            ChainState::NotConcerned => return,
            ChainState::Fine => {
                self.fine += 1;
                return;
            }
            ChainState::WithoutChain { reason } => (Kind::WithoutChain, reason),
            ChainState::NotAsking { reason } => (Kind::NotAsking, reason),
            ChainState::Skipped { reason } => (Kind::Skipped, reason),
            ChainState::Stale { reason } => (Kind::Stale, reason),
            ChainState::Wrong { reason } => (Kind::Wrong, reason),
            ChainState::Unknown { reason } => (Kind::Unknown, reason),
        };
        let owner = meta.owner();
        let action = match kind {
            Kind::WithoutChain | Kind::Stale | Kind::Wrong => restart(namespace, &owner),
            Kind::NotAsking | Kind::Skipped | Kind::Unknown => String::new(),
        };
        self.add_to(kind, namespace, &owner, meta.name(), (reason, action));
    }

    pub(super) fn add_to(
        &mut self,
        kind: Kind,
        namespace: &str,
        owner: &str,
        pod: &str,
        (reason, action): (String, String),
    ) {
        let key = (kind, namespace.to_owned(), owner.to_owned(), reason, action);
        self.count(key, 1, pod);
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

    /// Returns one check for each kind of result.
    pub(super) fn checks(self) -> Vec<Check> {
        let Self { fine, groups } = self;
        let of = |wanted: Kind| {
            let of_kind = groups.iter().filter(|((kind, ..), _)| *kind == wanted);
            of_kind
                .map(|((_, namespace, owner, reason, action), (pods, example))| PodGroup {
                    namespace: namespace.clone(),
                    owner: owner.clone(),
                    pods: *pods,
                    example: example.clone(),
                    reason: reason.clone(),
                    action: action.clone(),
                })
                .collect::<Vec<_>>()
        };
        let check = |name, kind, bad: Status, good: &str, text: &str| {
            let pods = of(kind);
            let count: u64 = pods.iter().map(|group| group.pods).sum();
            let (status, found) =
                if count == 0 { (Status::Ok, good.to_owned()) } else { (bad, format!("{text}: {count}")) };
            Check { pods, ..Check::new(name, status, found) }
        };
        let mut checks = vec![
            check(
                "pods-without-chain",
                Kind::WithoutChain,
                Status::Failed,
                &format!("all pods that request a chain have one; {fine} have the current chain"),
                "pods that request a chain and have none",
            ),
            check(
                "stale-chains",
                Kind::Stale,
                Status::Failed,
                "no pod has an outdated chain",
                "pods with an outdated chain",
            ),
            check(
                "wrong-chains",
                Kind::Wrong,
                Status::Failed,
                "no chain is incomplete or replaced",
                "pods with a chain that is incomplete or replaced",
            ),
            check(
                "skipped-pods",
                Kind::Skipped,
                Status::Ok,
                "no pod opts out",
                "pods that opt out and are allowed to",
            ),
        ];
        for (name, kind, status, text) in [
            (
                "pods-not-asking",
                Kind::NotAsking,
                Status::Warning,
                "pods whose request for a chain has no effect",
            ),
            ("pods-unknown", Kind::Unknown, Status::Unknown, "pods that could not be evaluated"),
        ] {
            let found = check(name, kind, status, "", text);
            checks.extend((found.status != Status::Ok).then_some(found));
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
    use super::*;

    #[test]
    fn pods_are_grouped_and_groups_are_bounded() {
        let mut groups = Groups::default();
        let why = || ("image differs".to_owned(), String::new());
        for pod in 0..10_000 {
            groups.add_to(Kind::Stale, "shop", "deployment/web", &format!("web-{pod}"), why());
        }
        for owner in 0..10_000 {
            groups.add_to(Kind::Stale, "shop", &format!("deployment/{owner}"), "p", why());
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
