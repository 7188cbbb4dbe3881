//! AdmissionReviews as sent by the API server.

#![allow(clippy::panic, reason = "a test that asks for a review that cannot be made has to fail")]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use kube_core::gvk::{GroupVersionKind, GroupVersionResource};
use lucid_webhook::{AdmissionRequest, Operation};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::matching::{Labels, Scope, Subject, UnknownNamespace, labels_of};
use crate::outcome::{Mismatch, RejectedBy, ReviewRejection};
use crate::{new_uid, resource};

/// Builds an AdmissionReview of `admission.k8s.io/v1`, with all fields set by the API server.
///
/// Objects are any values that serialize to JSON with `apiVersion` and `kind`: a type of `k8s-openapi`, a custom
/// resource, a [`serde_json::Value`]. Name and namespace default to those in the metadata, and the resource to that of
/// the kind. Objects are sent unchanged, except that those without a namespace get that of the request.
///
/// ```
/// use std::time::Duration;
///
/// use lucid_webhook_test::Review;
/// use serde_json::json;
///
/// let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}});
/// let request = Review::create(&pod)
///     .namespace("shop")
///     .user("jane", ["dev"])
///     .dry_run()
///     .into_request(Duration::from_secs(10));
/// assert_eq!(request.resource.resource, "pods");
/// assert_eq!(request.name, "");
/// assert!(request.dry_run);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Review {
    operation: Operation,
    object: Option<Value>,
    old_object: Option<Value>,
    kind: GroupVersionKind,
    resource: GroupVersionResource,
    sub_resource: String,
    requested: Option<(GroupVersionKind, GroupVersionResource)>,
    name: Option<String>,
    namespace: Option<String>,
    username: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
    dry_run: bool,
    options: Map<String, Value>,
    uid: Option<String>,
}

impl Review {
    /// Creates `object`; there is no old object. With `generateName` and no name, the name in the request is empty, as
    /// mutating webhooks see it; validating ones get the generated name.
    ///
    /// # Panics
    ///
    /// If `object` does not serialize to a JSON object with `apiVersion` and `kind`.
    #[track_caller]
    pub fn create(object: &impl Serialize) -> Self {
        Self::new(Operation::Create, Some(to_object(object)), None)
    }

    /// Updates `old` to `new`.
    ///
    /// # Panics
    ///
    /// If either does not serialize to a JSON object with `apiVersion` and `kind`.
    #[track_caller]
    pub fn update(old: &impl Serialize, new: &impl Serialize) -> Self {
        Self::new(Operation::Update, Some(to_object(new)), Some(to_object(old)))
    }

    /// Deletes `old`; there is no new object.
    ///
    /// # Panics
    ///
    /// If `old` does not serialize to a JSON object with `apiVersion` and `kind`.
    #[track_caller]
    pub fn delete(old: &impl Serialize) -> Self {
        Self::new(Operation::Delete, None, Some(to_object(old)))
    }

    /// Connects to an object. `options` is for example a `PodExecOptions`, which determines the resource and
    /// subresource. Set name and namespace to those of the pod, service or node.
    ///
    /// ```
    /// # use lucid_webhook_test::Review;
    /// # use serde_json::json;
    /// let options = json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["sh"], "stdin": true});
    /// let review = Review::connect(&options).namespace("shop").name("web");
    /// # let request = review.into_request(std::time::Duration::from_secs(1));
    /// # assert_eq!(request.sub_resource.as_deref(), Some("exec"));
    /// ```
    ///
    /// # Panics
    ///
    /// If `options` does not serialize to a JSON object with `apiVersion` and `kind`.
    #[track_caller]
    pub fn connect(options: &impl Serialize) -> Self {
        Self::new(Operation::Connect, Some(to_object(options)), None)
    }

    fn new(operation: Operation, object: Option<Value>, old_object: Option<Value>) -> Self {
        let text = |field| {
            let object = object.as_ref().or(old_object.as_ref());
            object.map(|object| text(object, field)).unwrap_or_default().to_owned()
        };
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
        let kind = GroupVersionKind { group: group.to_owned(), version: version.to_owned(), kind };
        let (resource, sub_resource) = resource::of_kind(&kind);
        Self {
            operation,
            kind,
            resource,
            sub_resource: sub_resource.to_owned(),
            requested: None,
            object,
            old_object,
            name: None,
            namespace: None,
            username: "kubernetes-admin".to_owned(),
            groups: vec!["kubeadm:cluster-admins".to_owned(), "system:authenticated".to_owned()],
            extra: BTreeMap::new(),
            dry_run: false,
            options: Map::new(),
            uid: None,
        }
    }

    /// Sets the resource (plural, lower case), if the plural derived from the kind is wrong. Group and version remain
    /// those of the kind.
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource.resource = resource.into();
        self
    }

    /// Sets group, version and resource, if the kind is of another group: `("apps", "v1", "deployments")` for the
    /// `autoscaling/v1` Scale of a Deployment.
    pub fn group_version_resource(mut self, group: &str, version: &str, resource: &str) -> Self {
        self.resource = GroupVersionResource::gvr(group, version, resource);
        self
    }

    /// Sets the subresource, such as `ephemeralcontainers`.
    pub fn subresource(mut self, name: impl Into<String>) -> Self {
        self.sub_resource = name.into();
        self
    }

    /// Sets the version and group requested by the client (`requestKind`, `requestResource`), if they differ from those
    /// matched by the webhook's rules (`matchPolicy: Equivalent`). The name of the kind remains.
    pub fn requested_as(mut self, group: &str, version: &str, resource: &str) -> Self {
        let kind = GroupVersionKind::gvk(group, version, &self.kind.kind);
        self.requested = Some((kind, GroupVersionResource::gvr(group, version, resource)));
        self
    }

    /// Sets the name in the request, if it differs from the object's metadata.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the namespace of the request. As in the API server, an object without a namespace gets it.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the user, by default a cluster administrator. Users except `system:anonymous` are also in the group
    /// `system:authenticated`.
    pub fn user<G: Into<String>>(
        mut self,
        name: impl Into<String>,
        groups: impl IntoIterator<Item = G>,
    ) -> Self {
        self.username = name.into();
        self.groups = groups.into_iter().map(Into::into).collect();
        let authenticated = "system:authenticated".to_owned();
        if self.username != "system:anonymous" && !self.groups.contains(&authenticated) {
            self.groups.push(authenticated);
        }
        self
    }

    /// Adds an extra attribute of the user, such as `authentication.kubernetes.io/pod-name`.
    pub fn user_extra<V: Into<String>>(
        mut self,
        key: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        self.extra.insert(key.into(), values.into_iter().map(Into::into).collect());
        self
    }

    /// Makes the request a dry run. CONNECT is never one.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = self.operation != Operation::Connect;
        self
    }

    /// Sets fields of the options, such as `{"fieldManager": "kubectl-create"}`; their kind follows the operation.
    /// CONNECT has no options.
    ///
    /// # Panics
    ///
    /// If `options` does not serialize to a JSON object.
    #[track_caller]
    pub fn options(mut self, options: &impl Serialize) -> Self {
        match serde_json::to_value(options) {
            Ok(Value::Object(fields)) => self.options = fields,
            other => panic!("options have to be a JSON object, found {other:?}"),
        }
        self
    }

    /// Sets the uid. By default each call gets a unique one.
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// Returns the AdmissionReview as JSON.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.envelope(&self.call_uid())
    }

    /// Returns the request as received by a handler, with its deadline after `timeout`.
    ///
    /// # Panics
    ///
    /// If the uid is empty.
    #[must_use]
    #[track_caller]
    pub fn into_request(self, timeout: Duration) -> AdmissionRequest {
        match AdmissionRequest::from_json(&self.to_bytes(), Instant::now() + timeout) {
            Ok(request) => request,
            Err(error) => panic!("the review is one that no API server sends: {error}"),
        }
    }

    /// Sets the namespace, unless the review or an object states one, or the object is a Namespace.
    pub(super) fn or_namespace(mut self, namespace: &str) -> Self {
        if self.request_namespace().is_empty() && !self.is_namespace() {
            self.namespace = Some(namespace.to_owned());
        }
        self
    }

    /// Returns the reason why a webhook does not receive this request, or the API server's rejection if its namespace
    /// does not exist.
    pub(super) fn matched_by(
        &self,
        scope: &Scope,
        namespaces: &BTreeMap<String, Labels>,
    ) -> Result<Option<(Mismatch, String)>, ReviewRejection> {
        let (object, old_object) = (self.sent_object(), self.with_namespace(self.old_object.as_ref()));
        let namespace = self.request_namespace();
        // Of a Namespace that is written, the labels of the new object count.
        let is_written = self.is_namespace()
            && self.sub_resource.is_empty()
            && matches!(self.operation, Operation::Create | Operation::Update);
        let written = object.as_ref().filter(|_| is_written).map(labels_of);
        let requested = self.requested.as_ref().map_or(&self.resource, |(_, resource)| resource);
        let subject = Subject {
            operation: self.operation,
            resources: [requested, &self.resource],
            sub_resource: &self.sub_resource,
            namespace: &namespace,
            namespace_labels: written.as_ref().or_else(|| namespaces.get(&namespace)),
            object: object.as_ref(),
            old_object: old_object.as_ref(),
        };
        scope.mismatch(&subject).map_err(|UnknownNamespace| ReviewRejection {
            by: RejectedBy::ApiServer,
            code: 404,
            reason: "NotFound".to_owned(),
            message: format!("namespaces {namespace:?} not found"),
            causes: Vec::new(),
        })
    }

    pub(super) fn with_object(mut self, object: Value) -> Self {
        self.object = self.object.map(|_| object);
        self
    }

    pub(super) fn call_uid(&self) -> String {
        self.uid.clone().unwrap_or_else(new_uid)
    }

    pub(super) fn envelope(&self, uid: &str) -> Bytes {
        let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": self.request(uid)});
        Bytes::from(review.to_string())
    }

    /// The object as sent, with the namespace of the request.
    pub(super) fn sent_object(&self) -> Option<Value> {
        self.with_namespace(self.object.as_ref())
    }

    fn request(&self, uid: &str) -> Value {
        let (request_kind, request_resource) =
            self.requested.as_ref().map_or((&self.kind, &self.resource), |(kind, resource)| (kind, resource));
        let mut request = json!({
            "uid": uid,
            "kind": kind(&self.kind),
            "resource": resource_of(&self.resource),
            "requestKind": kind(request_kind),
            "requestResource": resource_of(request_resource),
            "operation": self.operation.as_str(),
            "userInfo": self.user_info(),
            "object": self.sent_object(),
            "oldObject": self.with_namespace(self.old_object.as_ref()),
            "dryRun": self.dry_run,
            "options": self.operation_options(),
        });
        // Go omits these fields when empty.
        for (field, value) in [
            ("subResource", self.sub_resource.as_str()),
            ("requestSubResource", self.sub_resource.as_str()),
            ("name", &self.request_name()),
            ("namespace", &self.request_namespace()),
        ] {
            if !value.is_empty() {
                request[field] = value.into();
            }
        }
        request
    }

    fn metadata(&self, field: &str) -> String {
        let objects = [self.object.as_ref(), self.old_object.as_ref()];
        let mut found = objects.into_iter().flatten().map(|object| text(object, field));
        found.find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    }

    fn request_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.metadata("/metadata/name"))
    }

    fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "namespaces"
    }

    /// Namespace of the request. A Namespace object is in its own namespace.
    fn request_namespace(&self) -> String {
        if self.is_namespace() {
            self.request_name()
        } else {
            self.namespace.clone().unwrap_or_else(|| self.metadata("/metadata/namespace"))
        }
    }

    fn with_namespace(&self, object: Option<&Value>) -> Option<Value> {
        let mut object = object?.clone();
        if let Some(namespace) = self.namespace.as_ref()
            && !self.is_namespace()
            && self.operation != Operation::Connect
            && text(&object, "/metadata/namespace").is_empty()
        {
            object["metadata"]["namespace"] = namespace.as_str().into();
        }
        Some(object)
    }

    fn user_info(&self) -> Value {
        let mut user = json!({"username": self.username});
        if !self.groups.is_empty() {
            user["groups"] = json!(self.groups);
        }
        if !self.extra.is_empty() {
            user["extra"] = json!(self.extra);
        }
        user
    }

    fn operation_options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut options = self.options.clone();
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        if self.dry_run {
            options.insert("dryRun".to_owned(), json!(["All"]));
        }
        Value::Object(options)
    }
}

#[track_caller]
fn to_object(object: &impl Serialize) -> Value {
    let object = match serde_json::to_value(object) {
        Ok(object) => object,
        Err(error) => panic!("failed to serialise the object: {error}"),
    };
    for field in ["/apiVersion", "/kind"] {
        assert!(!text(&object, field).is_empty(), "the object has no {}: {object}", &field[1..]);
    }
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    assert!(metadata.is_object() || metadata.is_null(), "the object's metadata is not an object: {metadata}");
    object
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn kind(of: &GroupVersionKind) -> Value {
    json!({"group": of.group, "version": of.version, "kind": of.kind})
}

fn resource_of(of: &GroupVersionResource) -> Value {
    json!({"group": of.group, "version": of.version, "resource": of.resource})
}
