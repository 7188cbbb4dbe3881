//! Events about objects.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder};
use tracing::warn;

/// Size limit of a note in bytes (events.k8s.io/v1).
const MAX_NOTE: usize = 1024;

/// Publishes an event with the note truncated to its limit. A failure is only logged.
///
/// A recorder aggregates events with the same reason and keeps only the first note.
pub(crate) async fn publish(
    recorder: &Recorder,
    type_: EventType,
    reason: &str,
    action: &str,
    mut note: String,
    object: &ObjectReference,
) {
    note.truncate(note.floor_char_boundary(MAX_NOTE));
    let (reason, action) = (reason.to_owned(), action.to_owned());
    let event = Event { type_, reason, note: Some(note), action, secondary: None };
    if let Err(error) = recorder.publish(&event, object).await {
        let object = object.name.as_deref().unwrap_or_default();
        warn!(object, error = lucid_text::with_causes(&error), "failed to publish an event");
    }
}
