//! Sends events to the API server.
//!
//! Unlike `kube::runtime::events::Recorder`, events with different notes are distinct: the problem of a pod changes
//! while its user fixes it. The cache is bounded.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::events::{EventType, Reporter};
use kube::{Api, Client};
use moka::future::Cache;
use serde_json::json;

const ACTION: &str = "Inject";
/// Maximum length of a note in the API, in bytes.
const NOTE: usize = 1024;
/// Maximum length of the object's name at the start of an event's name, in bytes. Names of events have 253.
const NAME: usize = 200;

/// Content of an event.
#[derive(Clone, Debug)]
pub struct Occurrence {
    regarding: ObjectReference,
    severity: EventType,
    reason: &'static str,
    note: String,
}

impl Occurrence {
    /// Creates the content of an event in the namespace of `regarding`. `reason` is in UpperCamelCase; notes of more than
    /// 1024 bytes are cut, as the API demands.
    #[must_use]
    pub fn new(regarding: ObjectReference, severity: EventType, reason: &'static str, note: String) -> Self {
        Self { regarding, severity, reason, note: cut(note, NOTE) }
    }

    /// Identity of the event: occurrences with the same key are one event.
    #[must_use]
    pub fn key(&self) -> String {
        let Self { regarding, reason, note, .. } = self;
        let ObjectReference { api_version, kind, namespace, name, uid, .. } = regarding;
        format!("{:?}", (api_version, kind, namespace, name, uid, reason, note))
    }

    /// Returns the event, whose name ends with `suffix`.
    #[must_use]
    pub fn event(&self, reporter: &Reporter, action: &str, suffix: &str) -> Event {
        let Reporter { controller, instance } = reporter.clone();
        let Self { regarding, severity, reason, note } = self.clone();
        let about = regarding.name.as_deref().unwrap_or_default();
        let about = &about[..about.floor_char_boundary(NAME)];
        let about = about.trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
        Event {
            action: Some(action.to_owned()),
            event_time: Some(MicroTime(Timestamp::now())),
            metadata: ObjectMeta {
                name: Some(format!("{about}.{suffix}")),
                namespace: regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            note: Some(note),
            reason: Some(reason.to_owned()),
            regarding: Some(regarding),
            reporting_instance: Some(instance.unwrap_or_else(|| controller.clone())),
            reporting_controller: Some(controller),
            type_: Some(if severity == EventType::Warning { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        }
    }
}

impl fmt::Display for Occurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectReference { kind, namespace, name, .. } = &self.regarding;
        let [kind, namespace, name] = [kind, namespace, name].map(|text| text.as_deref().unwrap_or_default());
        write!(f, "{} of {kind:?} {namespace:?}/{name:?}", self.reason)
    }
}

fn cut(mut text: String, bytes: usize) -> String {
    const MARK: &str = "...";
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes - MARK.len()));
        text.push_str(MARK);
    }
    text
}

#[derive(Clone, Debug)]
struct Sent {
    name: String,
    times: u32,
}

pub(super) struct Publisher {
    client: Client,
    reporter: Reporter,
    sent: Cache<String, Sent>,
}

impl Publisher {
    pub(super) fn new(client: Client, reporter: Reporter) -> Self {
        /// Idle time after which an event starts a new series, as for Kubernetes' own events.
        const PAUSE: Duration = Duration::from_mins(6);
        Self { client, reporter, sent: Cache::builder().max_capacity(1_000).time_to_idle(PAUSE).build() }
    }

    /// Reports `times` occurrences of an event.
    pub(super) async fn publish(&mut self, occurrence: &Occurrence, times: u32) -> Result<(), kube::Error> {
        let namespace = occurrence.regarding.namespace.as_deref().unwrap_or_default();
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        let key = occurrence.key();
        let mut sent = match self.sent.get(&key).await {
            Some(sent) => sent,
            None => Sent { name: self.create(&api, occurrence).await?, times: 0 },
        };
        let is_new = sent.times == 0;
        sent.times = sent.times.saturating_add(times);
        if sent.times > 1 {
            match self.repeat(&api, &sent).await {
                // The event has expired or was deleted.
                Err(kube::Error::Api(status)) if status.is_not_found() && !is_new => {
                    sent = Sent { name: self.create(&api, occurrence).await?, times };
                }
                answer => answer?,
            }
        }
        self.sent.insert(key, sent).await;
        Ok(())
    }

    async fn create(&self, api: &Api<Event>, occurrence: &Occurrence) -> Result<String, kube::Error> {
        let suffix = format!("{:x}", Timestamp::now().as_nanosecond());
        let event = occurrence.event(&self.reporter, ACTION, &suffix);
        let created = api.create(&PostParams::default(), &event).await?;
        Ok(created.metadata.name.unwrap_or_default())
    }

    async fn repeat(&self, api: &Api<Event>, sent: &Sent) -> Result<(), kube::Error> {
        let count = i32::try_from(sent.times).unwrap_or(i32::MAX);
        let series = EventSeries { count, last_observed_time: MicroTime(Timestamp::now()) };
        let patch = Patch::Merge(json!({ "series": series }));
        api.patch(&sent.name, &PatchParams::default(), &patch).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_truncated_at_character_boundaries() {
        assert_eq!(cut("short".to_owned(), NOTE), "short");
        assert_eq!(cut("x".repeat(NOTE), NOTE).len(), NOTE);
        for text in ["x".repeat(NOTE + 1), "é".repeat(NOTE), "安".repeat(NOTE)] {
            let cut = cut(text, NOTE);
            assert!(cut.len() <= NOTE && cut.len() > NOTE - 8 && cut.ends_with("..."), "{}", cut.len());
        }
    }
}
