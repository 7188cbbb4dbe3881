//! Tells of changes: decisions in the log, and events on pods and their controllers, at a bounded rate. Neither waits for the
//! other.
//!
//! The name of an event follows from pod, state and reason. A replica that becomes the leader sees old states for the first
//! time; what its predecessor announced exists already and is not repeated. Decisions are: whoever may create events in a
//! namespace must not be able to keep a state out of the log.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::events::{EventType, Reporter};
use kube::{Api, Client};
use lucid_admission::{Occurrence, Owners};
use lucid_audit::{Decision, Recorder};
use lucid_text::with_causes;
use serde_json::json;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::MissedTickBehavior;

use crate::fleet::Subject;
use crate::metrics::Metrics;
use crate::state::State;

/// Interval between the events of two announcements: a change of the catalogue may concern every pod.
const PACE: Duration = Duration::from_millis(50);
/// Announcements whose events wait. Of more, the least urgent are dropped.
pub(crate) const QUEUE: usize = 10_000;
const ACTION: &str = "Keeping";

/// Something to tell about a pod.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) subject: Subject,
    pub(crate) what: What,
    pub(crate) note: String,
    /// Time of its event, which may be published later.
    pub(crate) time: Timestamp,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The keeper saw the pod's state change.
    Changed(State),
    /// The keeper saw the pod for the first time.
    Found(State),
    /// The keeper acted; the reason of the event. The action is recorded already.
    Acted(&'static str),
}

impl What {
    const fn reason(self) -> &'static str {
        match self {
            Self::Changed(state) | Self::Found(state) => state.as_str(),
            Self::Acted(reason) => reason,
        }
    }

    const fn is_warning(self) -> bool {
        match self {
            Self::Changed(state) | Self::Found(state) => state.is_problem(),
            Self::Acted(_) => false,
        }
    }

    /// Returns `true` if its event precedes those of pods that are merely not up to date.
    const fn is_urgent(self) -> bool {
        match self {
            Self::Changed(state) | Self::Found(state) => matches!(state, State::Revoked | State::Altered),
            Self::Acted(_) => true,
        }
    }
}

pub(crate) struct Announcer {
    pub(crate) client: Client,
    pub(crate) reporter: Reporter,
    pub(crate) owners: Arc<Owners>,
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) metrics: Metrics,
}

impl Announcer {
    pub(crate) async fn run(&self, announcements: Receiver<Announcement>) -> Infallible {
        let (to_record, recorded) = mpsc::channel(QUEUE);
        tokio::join!(self.publish_all(announcements, to_record), self.record_all(recorded)).0
    }

    async fn record_all(&self, mut told: Receiver<Arc<Announcement>>) -> Infallible {
        loop {
            match (told.recv().await, &self.recorder) {
                (Some(told), Some(recorder)) => told.record(recorder).await,
                (Some(_), None) => {}
                (None, _) => pending().await,
            }
        }
    }

    async fn publish_all(
        &self,
        mut announcements: Receiver<Announcement>,
        to_record: Sender<Arc<Announcement>>,
    ) -> Infallible {
        // The urgent ones first, in the order of their arrival.
        let mut waiting = BTreeMap::<_, Arc<Announcement>>::new();
        let mut arrivals = 0_u64;
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(told) = announcements.recv() => {
                    let told = Arc::new(told);
                    let is_recorded = matches!(told.what, What::Acted(_));
                    if !is_recorded && to_record.try_send(Arc::clone(&told)).is_err() {
                        self.metrics.count("announce", "failed");
                    }
                    arrivals += 1;
                    waiting.insert((!told.what.is_urgent(), arrivals), told);
                    if waiting.len() > QUEUE {
                        waiting.pop_last();
                        self.metrics.count("announce", "failed");
                    }
                }
                _ = pace.tick() => if let Some((_, told)) = waiting.pop_first() {
                    self.announce(&told).await;
                }
            }
        }
    }

    async fn announce(&self, told: &Announcement) {
        let pod = &told.subject;
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        };
        self.publish(told, reference, told.note.clone()).await;
        if let Some(owner) = self.owners.reference(&pod.namespace, pod.controller.as_deref().cloned()).await {
            self.publish(told, owner, format!("pod {}: {}", pod.name, told.note)).await;
        }
    }

    async fn publish(&self, told: &Announcement, regarding: ObjectReference, note: String) {
        let severity = if told.what.is_warning() { EventType::Warning } else { EventType::Normal };
        let mut hash = DefaultHasher::new();
        // Without the pod's name: equal for the pods of a workload, so that its event is one.
        (&regarding.uid, told.what.reason(), &told.note).hash(&mut hash);
        let occurrence = Occurrence::new(regarding, severity, told.what.reason(), note);
        let mut event = occurrence.event(&self.reporter, ACTION, &format!("{:016x}", hash.finish()));
        event.event_time = Some(MicroTime(told.time));
        let api: Api<Event> = Api::namespaced(self.client.clone(), &told.subject.namespace);
        let created = match api.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => match told.what {
                What::Found(_) => Ok(()),
                What::Changed(_) | What::Acted(_) => {
                    let series = EventSeries { count: 2, last_observed_time: MicroTime(told.time) };
                    let patch = Patch::Merge(json!({ "series": series }));
                    let name = event.metadata.name.unwrap_or_default();
                    api.patch(&name, &PatchParams::default(), &patch).await.map(drop)
                }
            },
            created => created.map(drop),
        };
        if let Err(error) = created {
            let (namespace, pod, error) = (&told.subject.namespace, &told.subject.name, with_causes(&error));
            tracing::warn!(namespace, pod, error, "failed to report an event");
        }
    }
}

impl Announcement {
    /// Records it as a decision of `keeper`.
    pub(crate) async fn record(&self, recorder: &Recorder) {
        let mut decision = Decision::new("keeper", "");
        // The API server was authenticated by TLS.
        decision.authenticated = true;
        decision.allowed = !self.what.is_warning();
        "Pod".clone_into(&mut decision.kind);
        self.subject.namespace.clone_into(&mut decision.namespace);
        self.subject.name.clone_into(&mut decision.name);
        decision.message = format!("{}: {}", self.what.reason(), self.note);
        if let Err(unrecorded) = recorder.record(decision).await {
            recorder.remember(*unrecorded.decision);
        }
    }
}
