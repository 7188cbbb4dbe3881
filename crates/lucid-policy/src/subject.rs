//! The subject of a request: a pod or a pod template.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use lucid_chain::{PodError, PodView};
use lucid_text::Line;
use lucid_text::json::{self, Reader};
use serde_json::Value;
use snafu::Snafu;

use crate::evaluated_keys::EvaluatedKeys;

/// A kind of object that is a pod or contains a pod template.
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
    /// All kinds, `Pod` first.
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

    /// Returns the workload for an API `group` (empty for core) and `kind`, or `None` for any other kind.
    #[must_use]
    pub fn from_kind(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.group() == group && workload.kind() == kind)
    }

    /// Returns API group (empty for core), kind and resource.
    const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Pod => ("", "Pod", "pods"),
            Self::Deployment => ("apps", "Deployment", "deployments"),
            Self::StatefulSet => ("apps", "StatefulSet", "statefulsets"),
            Self::DaemonSet => ("apps", "DaemonSet", "daemonsets"),
            Self::ReplicaSet => ("apps", "ReplicaSet", "replicasets"),
            Self::ReplicationController => ("", "ReplicationController", "replicationcontrollers"),
            Self::Job => ("batch", "Job", "jobs"),
            Self::CronJob => ("batch", "CronJob", "cronjobs"),
            Self::PodTemplate => ("", "PodTemplate", "podtemplates"),
        }
    }

    /// Returns the API group; empty for core.
    #[must_use]
    pub const fn group(self) -> &'static str {
        self.names().0
    }

    #[must_use]
    pub(crate) const fn kind(self) -> &'static str {
        self.names().1
    }

    /// Returns the resource (plural, lower case), such as `deployments`.
    #[must_use]
    pub const fn resource(self) -> &'static str {
        self.names().2
    }

    /// Returns `true` for [`Workload::Pod`]. Only pods are refused.
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

/// The relevant fields of an `admission.k8s.io/v1` `AdmissionRequest` that creates or updates an object.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    pub(crate) workload: Workload,
    pub(crate) subresource: Option<&'a str>,
    /// JSON of the new object (`AdmissionRequest.object`).
    pub(crate) object: Option<&'a [u8]>,
    /// JSON of the existing object (`AdmissionRequest.oldObject`); `None` if the request creates the object.
    pub(crate) old_object: Option<&'a [u8]>,
    pub(crate) namespace: &'a str,
    /// Labels and annotations whose changes are evaluated; `None` for all.
    pub(crate) evaluated_keys: Option<&'a EvaluatedKeys>,
    pub(crate) now: Timestamp,
}

/// The pod or pod template of a request that has to be evaluated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Subject<'a> {
    pub(crate) request: Request<'a>,
    /// The pod, or the pod template read as a pod.
    pub pod: PodView<'a>,
    pub(crate) old: Option<PodView<'a>>,
}

/// The object of a request does not match its kind.
#[derive(Debug, Snafu)]
#[snafu(display("{problem}"))]
pub struct SubjectError {
    workload: Workload,
    problem: String,
}

impl SubjectError {
    fn object(workload: Workload, error: &json::Error) -> Self {
        let problem =
            format!("failed to read the {workload} at {}: {}", Line(error.path()), Line(&error.problem()));
        Self { workload, problem }
    }

    fn pod(workload: Workload, error: &PodError) -> Self {
        let place = if workload.is_pod() { String::new() } else { format!("template of the {workload}: ") };
        Self { workload, problem: format!("{place}{error}") }
    }

    /// Returns the kind of the object.
    #[must_use]
    pub fn workload(&self) -> Workload {
        self.workload
    }
}

impl<'a> Request<'a> {
    /// Creates a request without subresource and objects.
    #[must_use]
    pub const fn new(workload: Workload, namespace: &'a str, now: Timestamp) -> Self {
        let evaluated_keys = None;
        Self { workload, subresource: None, object: None, old_object: None, namespace, evaluated_keys, now }
    }

    /// Sets the subresource.
    #[must_use]
    pub const fn with_subresource(self, subresource: Option<&'a str>) -> Self {
        Self { subresource, ..self }
    }

    /// Sets the JSON of the new object.
    #[must_use]
    pub const fn with_object(self, object: Option<&'a [u8]>) -> Self {
        Self { object, ..self }
    }

    /// Sets the JSON of the existing object, which makes the request an update.
    #[must_use]
    pub const fn with_old_object(self, old_object: Option<&'a [u8]>) -> Self {
        Self { old_object, ..self }
    }

    /// Sets the labels and annotations whose changes are evaluated.
    #[must_use]
    pub const fn with_evaluated_keys(self, keys: &'a EvaluatedKeys) -> Self {
        Self { evaluated_keys: Some(keys), ..self }
    }

    pub(crate) const fn is_update(&self) -> bool {
        self.old_object.is_some()
    }

    /// Returns the subject to evaluate, or `None` if the request passes regardless of its object:
    ///
    /// - A request without an object, such as a deletion.
    /// - An update of an object with a `deletionTimestamp`. Only its finalizers matter now, and refusing the update
    ///   would keep the object alive. The API server clears the field in created objects, so it cannot be used to
    ///   bypass the checks.
    /// - An update that changes neither the pod's `spec` nor an [evaluated](EvaluatedKeys) label or annotation, or that
    ///   does not change the template, such as one of finalizers, owner references, status or replicas. A pod that
    ///   predates the policy could otherwise not even be released by its controller.
    /// - A request to a subresource other than `ephemeralcontainers` and `resize`, such as `scale`.
    ///
    /// # Errors
    ///
    /// Returns [`SubjectError`] if the object does not match its kind, or a created pod has no `spec`.
    pub fn subject(self) -> Result<Option<Subject<'a>>, SubjectError> {
        let workload = self.workload;
        let is_evaluated = matches!(self.subresource, None | Some("" | "ephemeralcontainers" | "resize"));
        let Some(object) = self.object.filter(|_| is_evaluated) else { return Ok(None) };
        // A created pod is always evaluated. One that does not parse is diagnosed below.
        if workload.is_pod()
            && !self.is_update()
            && let Ok(pod) = PodView::from_json(object)
        {
            return Ok(Some(Subject { request: self, pod, old: None }));
        }
        let Some(found) = Part::from_object(workload, object)? else {
            if workload.is_pod() && !self.is_update() {
                // Reports the missing `spec`.
                PodView::from_json(object).map_err(|error| SubjectError::pod(workload, &error))?;
            }
            return Ok(None);
        };
        let before = self.old_object.map(|old| Part::from_object(workload, old)).transpose()?.flatten();
        let is_being_deleted = self.is_update() && found.is_being_deleted;
        let is_same = |before: &Part<'_>| before.is_same(&found, self.evaluated_keys);
        if is_being_deleted || before.as_ref().is_some_and(is_same) {
            return Ok(None);
        }
        let view = |part: &Part<'a>| {
            PodView::from_json(part.pod).map_err(|error| SubjectError::pod(workload, &error))
        };
        let old = before.as_ref().map(view).transpose()?;
        Ok(Some(Subject { request: self, pod: view(&found)?, old }))
    }
}

/// Returns the labels or annotations in `json` that are evaluated; `None` if they do not parse.
fn evaluated(json: Option<&str>, keys: &EvaluatedKeys) -> Option<BTreeMap<String, Value>> {
    let mut labels: BTreeMap<String, Value> = json.map_or(Ok(BTreeMap::new()), serde_json::from_str).ok()?;
    labels.retain(|key, _| keys.contains(key));
    Some(labels)
}

struct Part<'a> {
    is_being_deleted: bool,
    spec: &'a str,
    /// JSON of a pod's labels and annotations.
    labels: [Option<&'a str>; 2],
    pod: &'a [u8],
}

impl<'a> Part<'a> {
    /// Returns `true` if an update from this part to `other` changes nothing that is evaluated.
    fn is_same(&self, other: &Part<'_>, keys: Option<&EvaluatedKeys>) -> bool {
        let mut labels = self.labels.into_iter().zip(other.labels);
        // The API server writes both objects of a request alike.
        self.spec == other.spec
            && labels.all(|(before, after)| {
                let is_equal = |keys| {
                    let (before, after) = (evaluated(before, keys), evaluated(after, keys));
                    before.is_some() && before == after
                };
                before == after || keys.is_some_and(is_equal)
            })
    }

    fn from_object(workload: Workload, json: &'a [u8]) -> Result<Option<Self>, SubjectError> {
        Self::read(workload, json).map_err(|error| SubjectError::object(workload, &error))
    }

    fn read(workload: Workload, json: &'a [u8]) -> Result<Option<Self>, json::Error> {
        let (first, rest): (_, &[_]) = match workload {
            Workload::Pod => ("spec", &[]),
            Workload::PodTemplate => ("template", &[]),
            Workload::CronJob => ("spec", &["jobTemplate", "spec", "template"]),
            _ => ("spec", &["template"]),
        };
        let (mut metadata, mut spec) = (None, None);
        let mut reader = Reader::new(str::from_utf8(json).map_err(json::Error::new)?);
        reader.object(|reader, key| match key {
            "metadata" => reader.member(&mut metadata, read_metadata),
            key if key == first => reader.member(&mut spec, |reader| raw_at(reader, rest)),
            _ => reader.skip(),
        })?;
        reader.end()?;
        let [deletion, labels, annotations] = metadata.unwrap_or_default();
        let is_pod = workload.is_pod();
        Ok(spec.flatten().map(|spec| Self {
            is_being_deleted: deletion.is_some(),
            spec,
            labels: [labels, annotations].map(|labels| labels.filter(|_| is_pod)),
            pod: if is_pod { json } else { spec.as_bytes() },
        }))
    }
}

fn raw_at<'a>(reader: &mut Reader<'a>, path: &[&str]) -> Result<Option<&'a str>, json::Error> {
    match path {
        [] => reader.raw().map(Some),
        [name, rest @ ..] => reader.only_member(name, |reader| raw_at(reader, rest)).map(Option::flatten),
    }
}

/// Returns the JSON of the deletion timestamp, labels and annotations.
fn read_metadata<'a>(reader: &mut Reader<'a>) -> Result<[Option<&'a str>; 3], json::Error> {
    let mut members = [None; 3];
    reader.object(|reader, key| match key {
        "deletionTimestamp" => reader.member(&mut members[0], Reader::raw),
        "labels" => reader.member(&mut members[1], Reader::raw),
        "annotations" => reader.member(&mut members[2], Reader::raw),
        _ => reader.skip(),
    })?;
    Ok(members)
}
