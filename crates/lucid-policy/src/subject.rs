//! What a request is about: a pod, or the template from which a controller makes pods.

use std::fmt;

use jiff::Timestamp;
use lucid_chain::{PodError, PodView};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use snafu::{ResultExt, Snafu};

/// A kind of object that is a pod or has a template of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Workload {
    /// `v1 Pod`
    Pod,
    /// `apps/v1 Deployment`
    Deployment,
    /// `apps/v1 StatefulSet`
    StatefulSet,
    /// `apps/v1 DaemonSet`
    DaemonSet,
    /// `apps/v1 ReplicaSet`
    ReplicaSet,
    /// `v1 ReplicationController`
    ReplicationController,
    /// `batch/v1 Job`
    Job,
    /// `batch/v1 CronJob`
    CronJob,
    /// `v1 PodTemplate`
    PodTemplate,
}

impl Workload {
    /// All of them, the pod first.
    pub const ALL: [Self; 9] = [
        Self::Pod,
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::Job,
        Self::CronJob,
        Self::PodTemplate,
    ];

    /// The one that is `kind` of `group`, the empty one for core.
    #[must_use]
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.group() == group && workload.kind() == kind)
    }

    /// API group; empty for core.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::Pod | Self::ReplicationController | Self::PodTemplate => "",
            Self::Deployment | Self::StatefulSet | Self::DaemonSet | Self::ReplicaSet => "apps",
            Self::Job | Self::CronJob => "batch",
        }
    }

    /// Kind, such as `Deployment`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::ReplicaSet => "ReplicaSet",
            Self::ReplicationController => "ReplicationController",
            Self::Job => "Job",
            Self::CronJob => "CronJob",
            Self::PodTemplate => "PodTemplate",
        }
    }

    /// Resource (plural, lower case), such as `deployments`.
    #[must_use]
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::Deployment => "deployments",
            Self::StatefulSet => "statefulsets",
            Self::DaemonSet => "daemonsets",
            Self::ReplicaSet => "replicasets",
            Self::ReplicationController => "replicationcontrollers",
            Self::Job => "jobs",
            Self::CronJob => "cronjobs",
            Self::PodTemplate => "podtemplates",
        }
    }

    /// Whether it is a pod itself. Only pods are refused.
    #[must_use]
    pub fn is_pod(self) -> bool {
        self == Self::Pod
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

/// What is done to the object (`AdmissionRequest.operation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted, or connected to: nothing of it is judged.
    Other,
}

/// What is asked, in the terms of an `admission.k8s.io/v1` AdmissionRequest.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// What is done.
    pub operation: Operation,
    /// To what.
    pub workload: Workload,
    /// To which part of it, such as `ephemeralcontainers`.
    pub subresource: Option<&'a str>,
    /// The object as it would be stored, as JSON.
    pub object: Option<&'a [u8]>,
    /// The object as it is stored, as JSON.
    pub old_object: Option<&'a [u8]>,
    /// Its namespace.
    pub namespace: &'a str,
    /// The present.
    pub now: Timestamp,
}

/// The pod, or template of pods, that a request is about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Subject<'a> {
    /// What was asked.
    pub request: Request<'a>,
    /// The pod, or the template, which has the same shape.
    pub pod: PodView<'a>,
    /// The same before an update.
    pub old: Option<PodView<'a>>,
}

/// An object is not what its kind says.
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum SubjectError {
    /// It is no JSON object with a template where this kind has one.
    #[snafu(display("failed to read the {workload}: {}", reason(source)))]
    Object {
        /// Its kind.
        workload: Workload,
        /// What is wrong where.
        source: serde_json::Error,
    },
    /// The pod cannot be read.
    #[snafu(display("{}{source}", if workload.is_pod() { String::new() } else { format!("template of the {workload}: ") }))]
    Pod {
        /// The kind of the object that it stands in.
        workload: Workload,
        /// What is wrong where.
        source: PodError,
    },
}

impl SubjectError {
    /// Kind of the object.
    #[must_use]
    pub fn workload(&self) -> Workload {
        match self {
            Self::Object { workload, .. } | Self::Pod { workload, .. } => *workload,
        }
    }
}

/// What is wrong, without the place in the JSON: what the user wrote was another text.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).filter(|_| error.is_data()).unwrap_or(&text).to_owned()
}

impl<'a> Request<'a> {
    /// A request about no subresource, with neither object.
    #[must_use]
    pub const fn new(operation: Operation, workload: Workload, namespace: &'a str, now: Timestamp) -> Self {
        Self { operation, workload, subresource: None, object: None, old_object: None, namespace, now }
    }

    /// The same about this subresource, if any.
    #[must_use]
    pub const fn with_subresource(self, subresource: Option<&'a str>) -> Self {
        Self { subresource, ..self }
    }

    /// The same with the object as it would be stored, if there is one.
    #[must_use]
    pub const fn with_object(self, object: Option<&'a [u8]>) -> Self {
        Self { object, ..self }
    }

    /// The same with the object as it is stored, if there is one.
    #[must_use]
    pub const fn with_old_object(self, old_object: Option<&'a [u8]>) -> Self {
        Self { old_object, ..self }
    }

    /// What is to be judged; nothing when the request has to pass whatever the object looks like:
    ///
    /// - it deletes, or connects;
    /// - it is an update of an object that is being deleted (`deletionTimestamp`): only its finalizers are left to change,
    ///   and to hold that up would keep what is wrong alive; of one that is created the API server clears that field;
    /// - it is an update that leaves the pod's `spec`, or the template, as it is: labels, annotations, finalizers, owners,
    ///   status, replicas;
    /// - it is about a subresource other than `ephemeralcontainers` and `resize`, such as `scale`.
    ///
    /// # Errors
    ///
    /// When the object cannot be read.
    pub fn subject(self) -> Result<Option<Subject<'a>>, SubjectError> {
        let Self { workload, operation, .. } = self;
        let is_judged = operation != Operation::Other
            && matches!(self.subresource, None | Some("" | "ephemeralcontainers" | "resize"));
        let Some(object) = self.object.filter(|_| is_judged) else { return Ok(None) };
        let Some(found) = Part::of(workload, object)? else {
            if workload.is_pod() && operation == Operation::Create {
                // Says that `spec` is missing.
                PodView::from_json(object).context(PodSnafu { workload })?;
            }
            return Ok(None);
        };
        let before = match self.old_object.filter(|_| operation == Operation::Update) {
            Some(old) => Part::of(workload, old)?,
            None => None,
        };
        let is_being_deleted = operation == Operation::Update && found.is_being_deleted;
        if is_being_deleted || before.as_ref().is_some_and(|before| before.judged == found.judged) {
            return Ok(None);
        }
        let view = |part: &Part<'a>| PodView::from_json(part.pod).context(PodSnafu { workload });
        let old = before.as_ref().map(view).transpose()?;
        Ok(Some(Subject { request: self, pod: view(&found)?, old }))
    }
}

/// Where an object has its pod.
struct Part<'a> {
    is_being_deleted: bool,
    /// What an update has to change to be of interest.
    judged: &'a str,
    pod: &'a [u8],
}

impl<'a> Part<'a> {
    fn of(workload: Workload, json: &'a [u8]) -> Result<Option<Self>, SubjectError> {
        let object: Object<'a> = serde_json::from_slice(json).context(ObjectSnafu { workload })?;
        let inner = |json: Option<&'a RawValue>| match json {
            Some(json) => serde_json::from_str::<Inner<'a>>(json.get()).context(ObjectSnafu { workload }),
            None => Ok(Inner::default()),
        };
        let judged = match workload {
            Workload::Pod => object.spec,
            Workload::PodTemplate => object.template,
            Workload::CronJob => inner(inner(inner(object.spec)?.job_template)?.spec)?.template,
            _ => inner(object.spec)?.template,
        };
        Ok(judged.map(|judged| Self {
            is_being_deleted: object.metadata.is_some_and(|metadata| metadata.deletion_timestamp.is_some()),
            judged: judged.get(),
            pod: if workload.is_pod() { json } else { judged.get().as_bytes() },
        }))
    }
}

#[derive(Deserialize)]
struct Object<'a> {
    metadata: Option<Metadata>,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    template: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Inner<'a> {
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    template: Option<&'a RawValue>,
    #[serde(borrow)]
    job_template: Option<&'a RawValue>,
}
