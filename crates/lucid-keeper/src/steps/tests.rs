//! Simulates a cluster whose leaders are killed at any moment and see old states.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::act::{Done, may_evict, may_restart};
use crate::compare::{Comparison, Readiness};
use crate::tried::Tried;
use crate::workload::Workload;

/// Returns `false` for catalogues with an image that does not start.
fn starts(catalogue: usize) -> bool {
    catalogue % 3 != 2
}

#[derive(Clone, Debug)]
struct Pod {
    uid: usize,
    catalogue: usize,
    is_ready: bool,
    revision: usize,
    created: i64,
}

#[derive(Clone, Debug, Default)]
struct Deployment {
    pods: Vec<Pod>,
    restarted: Option<i64>,
}

#[derive(Clone, Debug)]
struct World {
    deployments: Vec<Deployment>,
    planned: usize,
    now: i64,
    next_uid: usize,
}

/// Knowledge of the leader: the world as of its last event, and its last step.
struct Leader {
    view: World,
    last: Option<(usize, usize)>,
}

#[derive(Clone, Debug)]
enum Event {
    /// The leader decides and acts.
    Act,
    /// The leader's watch delivers everything.
    Deliver,
    /// A kubelet or controller brings a pod of this deployment one step further.
    Progress(usize),
    /// The leader is killed; another takes over.
    Kill,
    /// The catalogue changes.
    Catalogue,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => Just(Event::Act),
        4 => Just(Event::Deliver),
        6 => (0..3_usize).prop_map(Event::Progress),
        1 => Just(Event::Kill),
        1 => Just(Event::Catalogue),
    ];
    proptest::collection::vec(event, 1..120)
}

fn image(catalogue: usize) -> String {
    format!("auditor@{catalogue}")
}

fn update(catalogue: usize) -> Update {
    Update { list: "containers", images: vec![("auditor".to_owned(), image(catalogue))], status: None }
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

fn owner(deployment: usize) -> OwnerReference {
    let name = format!("web-{deployment}");
    OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        name,
        ..OwnerReference::default()
    }
}

impl World {
    fn new() -> Self {
        let mut world = Self { deployments: Vec::new(), planned: 0, now: 0, next_uid: 0 };
        for size in [1, 2, 3] {
            let pods = (0..size).map(|_| Pod { is_ready: true, ..world.pod() }).collect();
            world.deployments.push(Deployment { pods, restarted: None });
        }
        world
    }

    fn pod(&mut self) -> Pod {
        self.next_uid += 1;
        Pod { uid: self.next_uid, catalogue: self.planned, is_ready: false, revision: 0, created: self.now }
    }

    fn running(&self) -> Vec<RunningPod> {
        let pods = self.deployments.iter().enumerate().flat_map(|(number, deployment)| {
            deployment.pods.iter().map(move |pod| self.running_pod(number, pod))
        });
        pods.collect()
    }

    fn running_pod(&self, deployment: usize, pod: &Pod) -> RunningPod {
        let is_current = pod.catalogue == self.planned;
        let state = if is_current { State::Audited } else { State::Stale };
        let update = update(self.planned);
        RunningPod {
            namespace: "shop".to_owned(),
            name: format!("pod-{}", pod.uid),
            uid: pod.uid.to_string(),
            resource_version: pod.revision.to_string(),
            created: Some(time(pod.created)),
            workload: Some(Arc::new(Workload {
                kind: "deployment".to_owned(),
                name: format!("web-{deployment}"),
            })),
            controller: Some(Arc::new(owner(deployment))),
            comparison: Arc::new(Comparison {
                state,
                reason: String::new(),
                images: Vec::new(),
                update: (!is_current).then(|| Box::new(update)),
                planned: vec![image(self.planned)],
                readiness: Readiness { is_ready: pod.is_ready, is_tried: true, unready: None },
            }),
            is_ready: pod.is_ready,
            state,
            other_reason: None,
        }
    }

    fn find(&mut self, uid: usize) -> Option<(usize, &mut Pod)> {
        let all = self.deployments.iter_mut().enumerate();
        all.flat_map(|(number, deployment)| deployment.pods.iter_mut().map(move |pod| (number, pod)))
            .find(|(_, pod)| pod.uid == uid)
    }

    /// A pod becomes ready, or the controller replaces one of a former template after a restart.
    fn progress(&mut self, deployment: usize) {
        let found = &mut self.deployments[deployment];
        if let Some(pod) = found.pods.iter_mut().find(|pod| !pod.is_ready && starts(pod.catalogue)) {
            (pod.is_ready, pod.revision) = (true, pod.revision + 1);
            return;
        }
        let restarted = found.restarted;
        let is_old = |pod: &Pod| restarted.is_some_and(|restarted| pod.created < restarted);
        if found.pods.iter().all(|pod| pod.is_ready)
            && let Some(place) = found.pods.iter().position(is_old)
        {
            self.deployments[deployment].pods[place] = self.pod();
        }
    }
}

/// Steps that took effect, by catalogue at that time: pods updated or evicted, and deployments restarted.
#[derive(Default)]
struct Effects {
    pods: Vec<(usize, usize)>,
    restarts: Vec<(usize, usize)>,
}

/// Performs the step as the API server would, with the checks and preconditions of `act`.
fn perform(
    world: &mut World,
    view: &World,
    decided: &RunningPod,
    step: &Step,
    effects: &mut Effects,
) -> bool {
    let uid: usize = decided.uid.parse().unwrap();
    let Some((deployment, pod)) = world.find(uid) else { return false };
    let is_unchanged = pod.revision.to_string() == decided.resource_version;
    let pods = &world.deployments[deployment].pods;
    let ready = pods.iter().filter(|pod| pod.is_ready).count();
    match step {
        Step::Update(update) if is_unchanged => {
            assert_eq!(update.images[0].1, image(view.planned));
            let others = pods.iter().filter(|pod| pod.uid != uid);
            let in_flight = others.filter(|pod| pod.catalogue == view.planned && !pod.is_ready).count();
            assert_eq!(in_flight, 0, "a second pod of a workload was updated before the first was ready");
            let (_, pod) = world.find(uid).unwrap();
            (pod.catalogue, pod.is_ready, pod.revision) = (view.planned, false, pod.revision + 1);
        }
        Step::Evict if is_unchanged => {
            let (spec, status) = (json!({"replicas": pods.len()}), json!({"readyReplicas": ready}));
            if may_evict(&owner(deployment), &spec, &status, decided.is_ready).is_err() {
                return false;
            }
            assert!(
                pods.iter().any(|pod| pod.is_ready && pod.uid != uid) || !decided.is_ready,
                "the last ready pod"
            );
            let place = pods.iter().position(|pod| pod.uid == uid).unwrap();
            world.deployments[deployment].pods[place] = world.pod();
        }
        Step::Rollout => {
            let restarted = world.deployments[deployment].restarted.map(|at| time(at).to_string());
            let annotations = json!({"kubectl.kubernetes.io/restartedAt": restarted});
            let spec = json!({"template": {"metadata": {"annotations": annotations}}});
            if may_restart(&owner(deployment), &spec, decided.created).is_err() {
                return false;
            }
            world.deployments[deployment].restarted = Some(world.now);
            assert!(!effects.restarts.contains(&(deployment, world.planned)), "restarted twice");
            effects.restarts.push((deployment, world.planned));
            return true;
        }
        _ => return false,
    }
    assert!(!effects.pods.contains(&(uid, view.planned)), "acted twice on {uid}");
    effects.pods.push((uid, view.planned));
    true
}

fn simulate(action: KeeperAction, events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut world = World::new();
    let mut leader = Leader { view: world.clone(), last: None };
    let mut effects = Effects::default();
    for event in events {
        world.now += 1;
        match event {
            Event::Deliver => leader.view = world.clone(),
            Event::Kill => leader = Leader { view: world.clone(), last: None },
            Event::Progress(deployment) => world.progress(deployment),
            Event::Catalogue => {
                world.planned += 1;
                // The catalogue is known at once: each replica watches it.
                leader.view.planned = world.planned;
            }
            Event::Act => {
                let running = leader.view.running();
                let is_last = |pod: &RunningPod| {
                    leader.last == Some((pod.uid.parse().unwrap(), pod.resource_version.parse().unwrap()))
                };
                if running.iter().any(is_last) {
                    continue;
                }
                let steps = next_steps(running.iter().map(|pod| (pod, action)), |_, _| true);
                let due = steps.into_iter().find_map(|(pod, next)| match next {
                    Next::Act(step) => Some((pod, step)),
                    _ => None,
                });
                let Some((pod, step)) = due else { continue };
                let view = leader.view.clone();
                if perform(&mut world, &view, pod, &step, &mut effects) && step != Step::Rollout {
                    leader.last = Some((pod.uid.parse().unwrap(), pod.resource_version.parse().unwrap()));
                }
            }
        }
        for bad in (0..=world.planned).filter(|catalogue| !starts(*catalogue)) {
            let pods = effects.pods.iter().filter(|(_, catalogue)| *catalogue == bad).count();
            prop_assert!(pods <= 1, "an image that does not start was given to {pods} pods");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn updates_survive_killed_leaders(events in events()) {
        simulate(KeeperAction::Update, events)?;
    }

    #[test]
    fn evictions_survive_killed_leaders(events in events()) {
        simulate(KeeperAction::Evict, events)?;
    }

    #[test]
    fn rollouts_survive_killed_leaders(events in events()) {
        simulate(KeeperAction::Rollout, events)?;
    }
}

#[test]
fn a_workload_that_waits_holds_back_no_other() {
    let mut world = World::new();
    world.planned = 1;
    let running = world.running();
    let acts = |may_act: &dyn Fn(&RunningPod) -> bool| {
        let pods = running.iter().map(|pod| (pod, KeeperAction::Update));
        let steps = next_steps(pods, |pod, _| may_act(pod));
        let acts = steps.into_iter().filter(|(_, next)| matches!(next, Next::Act(_)));
        acts.map(|(pod, _)| pod.workload.as_ref().unwrap().name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(acts(&|_| true), ["web-0"], "a new image is tried on one pod");
    let is_paused = |pod: &RunningPod| pod.workload.as_ref().unwrap().name == "web-0";
    assert_eq!(acts(&|pod| !is_paused(pod)), ["web-1"]);
}

#[test]
fn successors_that_are_as_wrong_are_not_replaced() {
    let mut world = World::new();
    world.planned = 1;
    world.now = Timestamp::now().as_second();
    let (old, mut new) = (world.deployments[0].pods[0].clone(), world.pod());
    new.catalogue = 0;
    let (old, new) = (world.running_pod(0, &old), world.running_pod(0, &new));
    let mut tried = Tried::default();
    assert!(tried.may_act(&old, &Step::Evict));
    tried.note(&old, &Step::Evict, &Done::Yes(String::new()));
    assert!(!tried.may_act(&old, &Step::Evict), "the workload pauses");
    tried.end_pauses();
    assert!(tried.may_act(&old, &Step::Evict));
    world.now += 1;
    assert!(!tried.may_act(&new, &Step::Evict), "its successor is as wrong");
    assert!(tried.may_act(&new, &Step::Update(Box::new(update(1)))));
    world.planned = 2;
    let new = RunningPod {
        comparison: Arc::new(Comparison { planned: vec![image(2)], ..(*new.comparison).clone() }),
        ..new
    };
    assert!(tried.may_act(&new, &Step::Evict), "another chain is planned");
}
