//! What the API server's audit log says of a request (audit.k8s.io/v1, Event).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::decision;
use crate::merkle::Hash;

/// The key under which a webhook hands its anchor to the API server, behind the webhook's name and a slash.
pub const ANNOTATION: &str = "anchor";

/// With what the API server says that a mutating webhook was called.
const MUTATION: &str = "mutation.webhook.admission.k8s.io/";

/// Part of the annotations with which the API server says that a webhook was called, also of one that failed open.
const CALLED: &str = "webhook.admission.k8s.io/";

/// Beginning of the message with which the API server answers a request that a webhook denied. Other refusals begin with the
/// resource.
const DENIED: &str = "admission webhook \"";

/// The parts of an event that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Event {
    kind: String,
    #[serde(rename = "auditID")]
    pub(super) audit_id: String,
    stage: String,
    user: User,
    impersonated_user: Option<User>,
    object_ref: ObjectRef,
    response_status: Option<ResponseStatus>,
    /// At level `Request` and above: the object, or of PATCH the patch.
    request_object: Value,
    pub(super) request_received_timestamp: Timestamp,
    pub(super) stage_timestamp: Timestamp,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ObjectRef {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: i64,
    message: String,
}

/// An anchor in an event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct EventAnchor {
    pub(super) seq: u64,
    pub(super) leaf: Hash,
    /// How many records the log had.
    #[serde(default)]
    pub(super) size: u64,
    /// The log's origin, where the webhook says it.
    #[serde(default, alias = "origin")]
    pub(super) log: Option<String>,
}

/// What request something belongs to, as far as both sides know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Request {
    /// In lower case and plural, with the subresource: `pods`, `pods/ephemeralcontainers`.
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) user: String,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Called {
    webhook: String,
    mutated: bool,
}

impl Event {
    /// Reads a line; `None` when it is no event.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let event: Self = serde_json::from_slice(line).ok()?;
        (event.kind == "Event" && !event.audit_id.is_empty()).then_some(event)
    }

    pub(super) fn request(&self) -> Request {
        let ObjectRef { resource, subresource, namespace, .. } = &self.object_ref;
        let user = self.impersonated_user.as_ref().unwrap_or(&self.user);
        let resource = match subresource.as_str() {
            "" => resource.clone(),
            subresource => format!("{resource}/{subresource}"),
        };
        Request { resource, namespace: namespace.clone(), user: decision::user(&user.username) }
    }

    /// The name of the object, or the `generateName` of the request; empty where the event shows neither: at level `Metadata`
    /// it has no `generateName`.
    pub(super) fn name(&self) -> &str {
        let generated = || self.request_object.pointer("/metadata/generateName")?.as_str();
        match self.object_ref.name.as_str() {
            "" => generated().unwrap_or_default(),
            name => name,
        }
    }

    /// Whether webhooks may have been called for the request. They were not when it has only just come, or when
    /// authentication or authorization refused it.
    pub(super) fn may_have_called(&self) -> bool {
        let refused = self.response_status.as_ref().filter(|it| matches!(it.code, 401 | 403));
        let called =
            || self.anchors().next().is_some() || self.annotations.keys().any(|key| key.contains(CALLED));
        self.stage != "RequestReceived"
            && refused.is_none_or(|status| status.message.starts_with(DENIED) || called())
    }

    /// The anchors, with the webhook each is of; the error is what stands there instead of one.
    pub(super) fn anchors(&self) -> impl Iterator<Item = (&str, Result<EventAnchor, &str>)> {
        self.annotations.iter().filter_map(|(key, value)| {
            let (webhook, key) = key.split_once('/')?;
            let ours = key == ANNOTATION;
            ours.then(|| (webhook, serde_json::from_str(value).map_err(|_| value.as_str())))
        })
    }

    /// The mutating webhooks that have changed the object.
    pub(super) fn mutated_by(&self) -> impl Iterator<Item = String> + '_ {
        let called = self.annotations.iter().filter(|(key, _)| key.starts_with(MUTATION));
        called.filter_map(|(_, value)| {
            let called: Called = serde_json::from_str(value).ok()?;
            called.mutated.then_some(called.webhook)
        })
    }
}
