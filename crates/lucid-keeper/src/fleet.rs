//! The running pods that request a chain, with their states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use lucid_notary::ImageReference;

use crate::compare::Comparison;
use crate::pod::StoredPod;
use crate::state::{State, Verdicts, state};
use crate::workload::{Workload, controller};

/// A running pod that requests a chain.
#[derive(Clone, Debug)]
pub(crate) struct RunningPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) workload: Option<Arc<Workload>>,
    pub(crate) controller: Option<Arc<OwnerReference>>,
    pub(crate) comparison: Arc<Comparison>,
    /// The pod's condition `Ready`.
    pub(crate) is_ready: bool,
    pub(crate) state: State,
    /// Reason of the state if it is not that of the comparison.
    pub(crate) other_reason: Option<String>,
}

impl RunningPod {
    /// Returns a pod with the state that follows from its comparison.
    pub(crate) fn new(pod: &StoredPod, comparison: Comparison, verdicts: &Verdicts, now: Timestamp) -> Self {
        let mut pod = Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            resource_version: pod.resource_version().unwrap_or_default(),
            created: pod.created(),
            workload: Workload::of(pod.meta()).map(Arc::new),
            controller: controller(pod.meta()).cloned().map(Arc::new),
            is_ready: pod.status.condition("Ready").is_some_and(|condition| condition.status == "True"),
            state: comparison.state,
            other_reason: None,
            comparison: Arc::new(comparison),
        };
        pod.settle(verdicts, now);
        pod
    }

    /// Applies verdicts and time. Returns the former state if it has changed.
    fn settle(&mut self, verdicts: &Verdicts, now: Timestamp) -> Option<State> {
        let (state, reason) = state(&self.comparison, verdicts, now);
        self.other_reason = (reason != self.comparison.reason).then(|| reason.into_owned());
        let before = std::mem::replace(&mut self.state, state);
        (before != state).then_some(before)
    }

    /// Shares what is equal, as most of it is for pods of one workload.
    fn share(&mut self, other: &Self) {
        if self.workload == other.workload {
            self.workload.clone_from(&other.workload);
        }
        if self.controller == other.controller {
            self.controller.clone_from(&other.controller);
        }
        if self.comparison == other.comparison {
            self.comparison = Arc::clone(&other.comparison);
        }
    }

    /// Reason of the state, which is empty for `Audited`.
    pub(crate) fn reason(&self) -> &str {
        self.other_reason.as_deref().unwrap_or(&self.comparison.reason)
    }

    /// Namespace and workload; a pod without a controller is its own.
    pub(crate) fn workload_key(&self) -> (String, String) {
        let own = || format!("pod/{}", self.name);
        (self.namespace.clone(), self.workload.as_ref().map_or_else(own, ToString::to_string))
    }

    /// Returns `true` if the pod has the planned chain, which serves.
    pub(crate) fn is_done(&self) -> bool {
        self.comparison.is_current() && self.comparison.readiness.is_ready && self.is_ready
    }
}

/// A pod as events and decisions name it.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) controller: Option<Arc<OwnerReference>>,
}

impl Subject {
    pub(crate) fn of(pod: &RunningPod) -> Self {
        Self {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            controller: pod.controller.clone(),
        }
    }
}

/// Change of a pod's state; `before` is `None` for a pod seen for the first time.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) subject: Subject,
    pub(crate) before: Option<State>,
    pub(crate) state: State,
    pub(crate) reason: String,
}

impl Change {
    fn new(pod: &RunningPod, before: Option<State>) -> Self {
        Self { subject: Subject::of(pod), before, state: pod.state, reason: pod.reason().to_owned() }
    }
}

/// Namespace and name.
type Key = (String, String);

/// Pods by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pods: BTreeMap<Key, RunningPod>,
    /// Pods of a list that is being read.
    listing: Option<BTreeSet<Key>>,
    changes: Vec<Change>,
    is_listed: bool,
}

impl Fleet {
    /// Begins a list. Its pods replace others of the same name one by one, so that memory holds each pod once.
    pub(crate) fn begin_list(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    /// Ends a list: pods that are not in it are gone.
    pub(crate) fn end_list(&mut self) {
        let listed = self.listing.take().unwrap_or_default();
        self.pods.retain(|key, _| listed.contains(key));
        self.is_listed = true;
    }

    /// Returns `true` once all pods have been listed.
    pub(crate) const fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Returns `true` if all pods are as the latest list and the watch since then have shown them.
    pub(crate) const fn is_complete(&self) -> bool {
        self.is_listed && self.listing.is_none()
    }

    pub(crate) fn set(&mut self, mut pod: RunningPod) {
        let key = (pod.namespace.clone(), pod.name.clone());
        if let Some(listed) = &mut self.listing {
            listed.insert(key.clone());
        }
        let before = self.pods.get(&key).filter(|before| before.uid == pod.uid).map(|before| before.state);
        if before != Some(pod.state) && (before.is_some() || pod.state.is_problem()) {
            self.changes.push(Change::new(&pod, before));
        }
        // Names of one workload's pods begin alike.
        let neighbours = [self.pods.range(..&key).next_back(), self.pods.range(&key..).next()];
        neighbours.into_iter().flatten().for_each(|(_, other)| pod.share(other));
        self.pods.insert(key, pod);
    }

    pub(crate) fn remove(&mut self, namespace: &str, name: &str) {
        self.pods.remove(&(namespace.to_owned(), name.to_owned()));
    }

    /// Applies verdicts and time to all pods, and returns the changes since the last call.
    pub(crate) fn settle(&mut self, verdicts: &Verdicts, now: Timestamp) -> Vec<Change> {
        for pod in self.pods.values_mut() {
            if let Some(before) = pod.settle(verdicts, now) {
                self.changes.push(Change::new(pod, Some(before)));
            }
        }
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &RunningPod> {
        self.pods.values()
    }

    /// Returns the pods of a namespace.
    pub(crate) fn of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a RunningPod> {
        let pods = self.pods.range((namespace.to_owned(), String::new())..);
        pods.map(|(_, pod)| pod).take_while(move |pod| pod.namespace == namespace)
    }

    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        self.pods.keys().map(|(namespace, _)| namespace.clone()).collect()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&RunningPod> {
        self.pods.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Images of the auditors that run.
    pub(crate) fn images(&self) -> BTreeSet<&ImageReference> {
        self.pods.values().flat_map(|pod| &pod.comparison.images).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::compare::Readiness;

    pub(crate) fn pod(number: usize, state: State, reason: String) -> RunningPod {
        let comparison = Comparison {
            state,
            reason,
            images: Vec::new(),
            update: None,
            planned: Vec::new(),
            readiness: Readiness::default(),
        };
        RunningPod {
            namespace: "shop".to_owned(),
            name: format!("web-{number:04}"),
            uid: String::new(),
            resource_version: String::new(),
            created: None,
            workload: None,
            controller: None,
            comparison: Arc::new(comparison),
            is_ready: true,
            state,
            other_reason: None,
        }
    }

    fn names(fleet: &Fleet) -> Vec<&str> {
        fleet.pods().map(|pod| pod.name.as_str()).collect()
    }

    #[test]
    fn a_list_replaces_pods_one_by_one_and_ends_those_it_lacks() {
        let mut fleet = Fleet::default();
        let settle = |fleet: &mut Fleet| {
            let changes = fleet.settle(&Verdicts::default(), Timestamp::UNIX_EPOCH);
            let change = |change: Change| (change.subject.name, change.before, change.state);
            changes.into_iter().map(change).collect::<Vec<_>>()
        };
        fleet.begin_list();
        for number in 0..3 {
            fleet.set(pod(number, State::Audited, String::new()));
        }
        assert!(!fleet.is_complete());
        fleet.end_list();
        assert!(fleet.is_complete() && settle(&mut fleet).is_empty());

        fleet.begin_list();
        fleet.set(pod(1, State::Stale, "an image".to_owned()));
        assert!(!fleet.is_complete(), "nothing is decided by half a list");
        assert_eq!(names(&fleet), ["web-0000", "web-0001", "web-0002"]);
        let stale = |number: usize, before| (format!("web-{number:04}"), before, State::Stale);
        assert_eq!(settle(&mut fleet), [stale(1, Some(State::Audited))]);
        fleet.set(pod(3, State::Stale, "an image".to_owned()));
        fleet.end_list();
        assert_eq!(names(&fleet), ["web-0001", "web-0003"]);
        assert_eq!(settle(&mut fleet), [stale(3, None)]);
        assert_eq!((fleet.of("shop").count(), fleet.of("sho").count()), (2, 0));
    }
}
