//! Tells of changes: events on pods and their controllers, and decisions in the log.
//!
//! The name of an event follows from pod, state and reason. A replica that becomes the leader sees old states for the first
//! time; what its predecessor announced exists already and is not repeated.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::events::Reporter;
use kube::{Api, Client};
use lucid_admission::Owners;
use lucid_audit::{Decision, Recorder};
use lucid_text::with_causes;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use crate::fleet::RunningPod;

/// Longest note of an event, in bytes (`events.k8s.io/v1`).
const NOTE: usize = 1024;
/// Minimum interval between two announcements: a change of the catalogue may concern every pod.
const PACE: Duration = Duration::from_millis(50);
const ACTION: &str = "Keeping";

/// Something to tell about a pod.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) pod: Arc<RunningPod>,
    /// Reason in UpperCamelCase.
    pub(crate) reason: &'static str,
    pub(crate) note: String,
    pub(crate) is_warning: bool,
    /// `true` if the keeper saw it happen, `false` if it found it.
    pub(crate) is_new: bool,
    /// `true` for an action, which is recorded already.
    pub(crate) is_action: bool,
}

pub(crate) struct Announcer {
    pub(crate) client: Client,
    pub(crate) reporter: Reporter,
    pub(crate) owners: Arc<Owners>,
    pub(crate) recorder: Option<Arc<Recorder>>,
}

impl Announcer {
    pub(crate) async fn run(&self, mut announcements: Receiver<Announcement>) {
        while let Some(announcement) = announcements.recv().await {
            self.announce(&announcement).await;
            tokio::time::sleep(PACE).await;
        }
    }

    async fn announce(&self, told: &Announcement) {
        let pod = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(told.pod.name.clone()),
            namespace: Some(told.pod.namespace.clone()),
            uid: Some(told.pod.uid.clone()),
            ..ObjectReference::default()
        };
        let is_told = self.publish(told, pod).await;
        // Mirror pods belong to a Node. Its events would not be in the namespace of the pod.
        if let Some(owner) = told.pod.controller.clone().filter(|owner| owner.kind != "Node") {
            let owner = self.owners.topmost(&told.pod.namespace, owner).await;
            self.publish(told, reference(&told.pod.namespace, owner)).await;
        }
        // Actions are recorded when they are done.
        if let Some(recorder) = self.recorder.as_ref().filter(|_| is_told && !told.is_action) {
            told.record(recorder).await;
        }
    }

    /// Returns `false` if this was announced before.
    async fn publish(&self, told: &Announcement, regarding: ObjectReference) -> bool {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &told.pod.namespace);
        let event = event(told, regarding, &self.reporter);
        let name = event.metadata.name.clone().unwrap_or_default();
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                if told.is_new {
                    let series = EventSeries { count: 2, last_observed_time: MicroTime(Timestamp::now()) };
                    let patch = Patch::Merge(json!({ "series": series }));
                    api.patch(&name, &PatchParams::default(), &patch).await.ok();
                }
                told.is_new
            }
            Err(error) => {
                let (pod, error) = (&told.pod.name, with_causes(&error));
                tracing::warn!(namespace = told.pod.namespace, pod, error, "failed to report an event");
                true
            }
        }
    }
}

impl Announcement {
    /// Records it as a decision of `keeper`.
    pub(crate) async fn record(&self, recorder: &Recorder) {
        let mut decision = Decision::new("keeper", "");
        // The API server was authenticated by TLS.
        decision.authenticated = true;
        decision.allowed = !self.is_warning;
        "Pod".clone_into(&mut decision.kind);
        self.pod.namespace.clone_into(&mut decision.namespace);
        self.pod.name.clone_into(&mut decision.name);
        decision.message = format!("{}: {}", self.reason, self.note);
        if let Err(unrecorded) = recorder.record(decision).await {
            recorder.remember(*unrecorded.decision);
        }
    }
}

fn event(told: &Announcement, regarding: ObjectReference, reporter: &Reporter) -> Event {
    let Announcement { pod, reason, note, is_warning, .. } = told;
    // Equal for the pods of a workload, so that its event is one.
    let about = regarding.name.clone().unwrap_or_default();
    let mut hash = DefaultHasher::new();
    (&regarding.uid, reason, note).hash(&mut hash);
    let instance = reporter.instance.clone().unwrap_or_else(|| reporter.controller.clone());
    let note = match regarding.kind.as_deref() {
        Some("Pod") => note.clone(),
        _ => format!("pod {}: {note}", pod.name),
    };
    Event {
        action: Some(ACTION.to_owned()),
        event_time: Some(MicroTime(Timestamp::now())),
        metadata: ObjectMeta {
            name: Some(format!("{}.{:016x}", prefix(&about), hash.finish())),
            namespace: Some(pod.namespace.clone()),
            ..ObjectMeta::default()
        },
        note: Some(note[..note.floor_char_boundary(NOTE)].to_owned()),
        reason: Some((*reason).to_owned()),
        regarding: Some(regarding),
        reporting_controller: Some(reporter.controller.clone()),
        reporting_instance: Some(instance),
        type_: Some(if *is_warning { "Warning" } else { "Normal" }.to_owned()),
        ..Event::default()
    }
}

/// Returns as much of `name` as fits into the name of an event.
fn prefix(name: &str) -> &str {
    const LONGEST: usize = 200;
    let cut = &name[..name.floor_char_boundary(LONGEST)];
    cut.trim_end_matches(|last: char| !last.is_ascii_alphanumeric())
}

fn reference(namespace: &str, owner: OwnerReference) -> ObjectReference {
    ObjectReference {
        api_version: Some(owner.api_version),
        kind: Some(owner.kind),
        name: Some(owner.name),
        namespace: Some(namespace.to_owned()),
        uid: Some(owner.uid),
        ..ObjectReference::default()
    }
}
