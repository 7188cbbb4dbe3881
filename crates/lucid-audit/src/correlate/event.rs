//! Events of the API server's audit log (audit.k8s.io/v1, Event).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::decision;
use crate::merkle::Hash;

/// Key of the audit annotation that carries the anchor. The API server prefixes it with the webhook's name and a slash.
const ANNOTATION: &str = "anchor";

/// Prefix of the annotations in which the API server records calls of mutating webhooks.
const MUTATION: &str = "mutation.webhook.admission.k8s.io/";

/// Part of all annotation keys in which the API server records webhook calls, including those that failed open.
const CALLED: &str = "webhook.admission.k8s.io/";

/// Prefix of the status message of requests denied by a webhook. The messages of other denials begin with the
/// resource.
const DENIED: &str = "admission webhook \"";

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
    /// Object, or patch of a PATCH request. Present at level `Request` and above.
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

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct EventAnchor {
    pub(super) seq: u64,
    pub(super) leaf: Hash,
    /// Number of records in the log when the record became durable.
    #[serde(default)]
    pub(super) size: u64,
    /// Origin of the log, if the webhook provides it.
    #[serde(default, alias = "origin")]
    pub(super) log: Option<String>,
}

/// Properties of a request known to both sides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Request {
    /// Lowercase plural resource with the subresource: `pods`, `pods/ephemeralcontainers`.
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
    /// Parses a line. Returns `None` if it is not an event.
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

    /// Returns the name of the object, or the `generateName` of the request. Empty if the event has neither: events of level
    /// `Metadata` have no `generateName`.
    pub(super) fn name(&self) -> &str {
        let generated = || self.request_object.pointer("/metadata/generateName")?.as_str();
        match self.object_ref.name.as_str() {
            "" => generated().unwrap_or_default(),
            name => name,
        }
    }

    /// Returns `true` if the API server may have called webhooks for the request. It has not at stage `RequestReceived`, or
    /// after failed authentication or authorization.
    pub(super) fn may_have_called(&self) -> bool {
        let refused = self.response_status.as_ref().filter(|it| matches!(it.code, 401 | 403));
        let called =
            || self.anchors().next().is_some() || self.annotations.keys().any(|key| key.contains(CALLED));
        self.stage != "RequestReceived"
            && refused.is_none_or(|status| status.message.starts_with(DENIED) || called())
    }

    /// Returns the anchors with the names of their webhooks. The error is an annotation value that is not an anchor.
    pub(super) fn anchors(&self) -> impl Iterator<Item = (&str, Result<EventAnchor, &str>)> {
        self.annotations.iter().filter_map(|(key, value)| {
            let (webhook, key) = key.split_once('/')?;
            let is_anchor = key == ANNOTATION;
            is_anchor.then(|| (webhook, serde_json::from_str(value).map_err(|_| value.as_str())))
        })
    }

    pub(super) fn mutated_by(&self) -> impl Iterator<Item = String> + '_ {
        let called = self.annotations.iter().filter(|(key, _)| key.starts_with(MUTATION));
        called.filter_map(|(_, value)| {
            let called: Called = serde_json::from_str(value).ok()?;
            called.mutated.then_some(called.webhook)
        })
    }
}
