//! Decides what happens to pods whose chain is not the planned one. No I/O.
//!
//! Everything follows from what the cluster shows, so that another replica that takes over decides the same. An image
//! that no pod runs yet is tried on one pod of the cluster, and a pod that does not become ready with it stops all steps
//! to that image.

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use lucid_admission::KeeperAction;

use crate::compare::Update;
use crate::fleet::RunningPod;
use crate::state::State;

/// One action on a pod or its workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Changes images of the running pod.
    Update(Box<Update>),
    /// Evicts the pod.
    Evict,
    /// Restarts the pod's workload.
    Rollout,
}

impl Step {
    /// The action that asked for it.
    pub(crate) const fn action(&self) -> KeeperAction {
        match self {
            Self::Update(_) => KeeperAction::Update,
            Self::Evict => KeeperAction::Evict,
            Self::Rollout => KeeperAction::Rollout,
        }
    }

    /// Returns `true` if other pods are created in place of the present ones.
    pub(crate) const fn replaces(&self) -> bool {
        matches!(self, Self::Evict | Self::Rollout)
    }

    /// Reason of its event, in UpperCamelCase.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Update(_) => "AuditorsUpdated",
            Self::Evict => "PodEvicted",
            Self::Rollout => "WorkloadRestarted",
        }
    }
}

/// Fate of a pod that needs an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The step is due.
    Act(Step),
    /// Nothing yet, with the reason.
    Wait(String),
    /// Nothing by the action of the namespace, with the reason.
    Never(String),
}

/// Returns what happens to each pod that needs an action, by the action of its namespace. Steps that `may_act` does not
/// permit wait, and hold back no others.
pub(crate) fn next_steps<'a>(
    pods: impl Iterator<Item = (&'a RunningPod, KeeperAction)>,
    may_act: impl Fn(&RunningPod, &Step) -> bool,
) -> Vec<(&'a RunningPod, Next)> {
    let mut images = Images::default();
    let mut workloads = BTreeMap::<(String, String), Vec<(&RunningPod, KeeperAction)>>::new();
    for (pod, action) in pods {
        images.add(pod);
        workloads.entry(pod.workload_key()).or_default().push((pod, action));
    }
    let mut steps = Vec::new();
    for ((_, workload), members) in workloads {
        let workload = Members::new(workload, members.iter().map(|(pod, _)| *pod));
        // At most one pod of a workload at a time.
        let mut acts: Option<&RunningPod> = None;
        for (pod, action) in &members {
            if !needs_action(pod) {
                continue;
            }
            let mut next = match acts {
                Some(first) => Next::Wait(format!("{} is first", first.name)),
                None => step(pod, *action, &workload),
            };
            if let Next::Act(step) = &next {
                if !may_act(pod, step) {
                    next = Next::Wait("it was tried before".to_owned());
                } else if let Some(reason) = images.obstacle(pod) {
                    next = Next::Wait(reason);
                } else {
                    acts = Some(pod);
                    images.tried(pod);
                }
            }
            steps.push((*pod, next));
        }
    }
    steps
}

fn needs_action(pod: &RunningPod) -> bool {
    matches!(pod.state, State::Missing | State::Altered | State::Stale | State::Revoked)
}

/// The pods of a workload.
struct Members {
    workload: String,
    ready: usize,
    /// Name of a pod with the planned chain that is not ready.
    unready: Option<String>,
}

impl Members {
    fn new<'a>(workload: String, pods: impl Iterator<Item = &'a RunningPod>) -> Self {
        let mut members = Self { workload, ready: 0, unready: None };
        for pod in pods {
            members.ready += usize::from(pod.is_ready);
            if pod.comparison.is_current() && !pod.is_done() {
                members.unready.get_or_insert_with(|| pod.name.clone());
            }
        }
        members
    }
}

/// Returns the step for `pod` without regard to images.
fn step(pod: &RunningPod, action: KeeperAction, Members { workload, ready, unready }: &Members) -> Next {
    let kind = pod.workload.as_ref().map(|workload| workload.kind.as_str());
    match action {
        KeeperAction::Report => Next::Never("its namespace asks for reports only".to_owned()),
        _ if pod.state == State::Missing && pod.comparison.planned.is_empty() => {
            Next::Never("no chain fits the pod".to_owned())
        }
        _ if pod.comparison.is_current() => {
            Next::Never("the revoked image is still the planned one".to_owned())
        }
        KeeperAction::Evict if pod.controller.is_none() => {
            Next::Never("nothing would create another pod: it has no controller".to_owned())
        }
        KeeperAction::Evict if !pod.controller.as_deref().is_some_and(counts_pods) => {
            Next::Never(format!("pods of {workload} are not evicted"))
        }
        KeeperAction::Rollout if !matches!(kind, Some("deployment" | "statefulset" | "daemonset")) => {
            Next::Never(format!(
                "{workload} cannot be restarted; only Deployments, StatefulSets and DaemonSets can"
            ))
        }
        _ if unready.is_some() => {
            Next::Wait(format!("{} of {workload} is not ready", unready.as_deref().unwrap_or_default()))
        }
        KeeperAction::Update => match &pod.comparison.update {
            Some(update) => Next::Act(Step::Update(update.clone())),
            None => {
                Next::Never(format!("{} cannot be changed in a running pod; rollout could", pod.reason()))
            }
        },
        KeeperAction::Evict if pod.is_ready && *ready == 1 => {
            Next::Wait(format!("it is the only ready pod of {workload}"))
        }
        KeeperAction::Evict => Next::Act(Step::Evict),
        KeeperAction::Rollout => Next::Act(Step::Rollout),
    }
}

/// Returns `true` for owners whose status says how many pods they want and how many are ready.
fn counts_pods(owner: &OwnerReference) -> bool {
    owner.api_version == "apps/v1"
        && matches!(owner.kind.as_str(), "ReplicaSet" | "StatefulSet" | "DaemonSet")
}

/// Images of auditors as pods with the planned chain run them.
#[derive(Default)]
struct Images<'a> {
    ready: HashSet<&'a str>,
    /// Pods that are not ready with an image.
    unready: HashMap<&'a str, &'a RunningPod>,
}

impl<'a> Images<'a> {
    fn add(&mut self, pod: &'a RunningPod) {
        if !pod.comparison.is_current() {
            return;
        }
        let images = pod.comparison.planned.iter().map(String::as_str);
        if pod.comparison.readiness.is_ready {
            self.ready.extend(images);
        } else if pod.comparison.readiness.is_tried {
            self.unready.extend(images.map(|image| (image, pod)));
        }
    }

    fn tried(&mut self, pod: &'a RunningPod) {
        self.unready.extend(pod.comparison.planned.iter().map(|image| (image.as_str(), pod)));
    }

    /// Returns the reason why a pod cannot get its planned images yet.
    fn obstacle(&self, pod: &RunningPod) -> Option<String> {
        let untried = pod.comparison.planned.iter().filter(|image| !self.ready.contains(image.as_str()));
        untried.into_iter().find_map(|image| {
            let other = self.unready.get(image.as_str())?;
            Some(format!(
                "{}/{} is not ready with {image}, which no other pod runs",
                other.namespace, other.name
            ))
        })
    }
}

#[cfg(test)]
mod tests;
