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
    pub(crate) workload: Option<Workload>,
    pub(crate) controller: Option<OwnerReference>,
    pub(crate) comparison: Comparison,
    /// The pod's condition `Ready`.
    pub(crate) is_ready: bool,
    pub(crate) state: State,
    pub(crate) reason: String,
}

impl RunningPod {
    /// Returns a pod with the state that follows from its comparison.
    pub(crate) fn new(pod: &StoredPod, comparison: Comparison, verdicts: &Verdicts, now: Timestamp) -> Self {
        let (state, reason) = state(&comparison, verdicts, now);
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            resource_version: pod.resource_version().unwrap_or_default(),
            created: pod.created(),
            workload: Workload::of(pod.meta()),
            controller: controller(pod.meta()).cloned(),
            is_ready: pod.status.condition("Ready").is_some_and(|condition| condition.status == "True"),
            comparison,
            state,
            reason,
        }
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

/// Change of a pod's state; `before` is `None` for a pod seen for the first time.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) pod: Arc<RunningPod>,
    pub(crate) before: Option<State>,
}

/// Namespace and name.
type Key = (String, String);

/// Pods by namespace and name.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    pods: BTreeMap<Key, Arc<RunningPod>>,
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

    pub(crate) fn set(&mut self, pod: RunningPod) {
        let (key, pod) = ((pod.namespace.clone(), pod.name.clone()), Arc::new(pod));
        if let Some(listed) = &mut self.listing {
            listed.insert(key.clone());
        }
        self.note(&key, &pod);
        self.pods.insert(key, pod);
    }

    pub(crate) fn remove(&mut self, namespace: &str, name: &str) {
        self.pods.remove(&(namespace.to_owned(), name.to_owned()));
    }

    fn note(&mut self, key: &Key, pod: &Arc<RunningPod>) {
        let before = self.pods.get(key).filter(|before| before.uid == pod.uid).map(|before| before.state);
        if before != Some(pod.state) && (before.is_some() || pod.state.is_problem()) {
            self.changes.push(Change { pod: Arc::clone(pod), before });
        }
    }

    /// Applies verdicts and time to all pods, and returns the changes since the last call.
    pub(crate) fn settle(&mut self, verdicts: &Verdicts, now: Timestamp) -> Vec<Change> {
        for pod in self.pods.values_mut() {
            let (state, reason) = state(&pod.comparison, verdicts, now);
            let before = pod.state;
            if before != state || pod.reason != reason {
                let pod = Arc::make_mut(pod);
                (pod.state, pod.reason) = (state, reason);
            }
            if before != state {
                self.changes.push(Change { pod: Arc::clone(pod), before: Some(before) });
            }
        }
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = &RunningPod> {
        self.pods.values().map(Arc::as_ref)
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&RunningPod> {
        self.pods.get(&(namespace.to_owned(), name.to_owned())).map(Arc::as_ref)
    }

    /// Images of the auditors that run.
    pub(crate) fn images(&self) -> BTreeSet<&ImageReference> {
        self.pods.values().flat_map(|pod| &pod.comparison.images).collect()
    }
}
