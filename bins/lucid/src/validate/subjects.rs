//! Objects to evaluate, found in files.

use jiff::Timestamp;
use lucid_policy::{Request, Workload};
use lucid_webhook::{AdmissionRequest, Operation, RawObject};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::documents::{Input, Object};
use crate::namespaces::Namespaces;

pub(super) const EXPECTED: &str =
    "v1 Pods with containers, workloads with a template of such pods, or AdmissionReviews of either";

#[derive(Default)]
pub(super) struct Found {
    pub(super) subjects: Vec<Subject>,
    pub(super) skipped: Vec<String>,
}

pub(super) struct Subject {
    pub(super) place: String,
    pub(super) title: Title,
    pub(super) request: Result<ReviewRequest, String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Title {
    pub(super) file: String,
    /// Counted from 1.
    pub(super) document: usize,
    /// First line of the document, counted from 1.
    pub(super) line: usize,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    #[serde(skip)]
    pub(super) text: String,
}

pub(super) struct ReviewRequest {
    pub(super) workload: Workload,
    subresource: Option<String>,
    object: Option<String>,
    old: Option<String>,
    pub(super) namespace: String,
    /// `true` for an AdmissionReview, which need not contain anything to evaluate, as in a deletion.
    pub(super) may_be_empty: bool,
}

pub(super) fn find(inputs: &[Input<'_>], namespaces: &Namespaces) -> Found {
    let mut found = Found::default();
    for input in inputs {
        let (file, document, line) = (input.file(), input.number(), input.document.line());
        let title = Title { file, document, line, ..Title::default() };
        if let Err(error) = input.document.len() {
            let place = format!("{}, document {document}", title.file);
            found.subjects.push(Subject { place, title, request: Err(error.to_string()) });
            continue;
        }
        if input.document.is_list() && input.document.len() == Ok(0) {
            found.skipped.push("a list without items".to_owned());
        }
        for part in input.document.parts() {
            for object in part.objects() {
                let json = part.value.pointer(&object.pointer).unwrap_or(&Value::Null);
                let Some(request) = ReviewRequest::of(&object, json, namespaces) else {
                    found.skipped.push(match (object.api_version.as_str(), object.kind.as_str()) {
                        ("", "") => "no apiVersion and no kind".to_owned(),
                        (version, kind) => format!("{} {}", version.escape_debug(), kind.escape_debug()),
                    });
                    continue;
                };
                let object = reviewed_object(json).unwrap_or(object);
                let text = object.to_string();
                let place = format!("{input}, {text}");
                let Object { kind, namespace, name, .. } = object;
                let title = Title { kind, namespace, name, text, ..title.clone() };
                found.subjects.push(Subject { place, title, request });
            }
        }
    }
    found
}

fn reviewed_object(review: &Value) -> Option<Object> {
    let request = review["request"].as_object().filter(|_| review["kind"] == "AdmissionReview")?;
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let kind = review.pointer("/request/kind")?;
    let object =
        ["object", "oldObject"].into_iter().filter_map(|key| request.get(key)).find(|it| it.is_object());
    let metadata = object.map(|object| &object["metadata"]).unwrap_or(&Value::Null);
    let name = request.get("name").and_then(text).or_else(|| text(&metadata["name"]));
    Some(Object {
        api_version: String::new(),
        kind: text(&kind["kind"])?,
        namespace: request.get("namespace").and_then(text),
        name: name
            .or_else(|| text(&metadata["generateName"]))
            .unwrap_or_else(|| "(without a name)".to_owned()),
        pointer: String::new(),
    })
}

impl ReviewRequest {
    /// Returns the request for an object; `None` if the webhook is not called for its kind.
    fn of(object: &Object, json: &Value, namespaces: &Namespaces) -> Option<Result<Self, String>> {
        let (group, version) = object.api_version.rsplit_once('/').unwrap_or(("", &object.api_version));
        if (group, object.kind.as_str()) == ("admission.k8s.io", "AdmissionReview") {
            return Self::of_review(json);
        }
        let workload = Workload::from_kind(group, &object.kind)?;
        Some(match version {
            "v1" => Ok(Self {
                workload,
                subresource: None,
                object: Some(json.to_string()),
                old: None,
                namespace: namespaces.name_of(object.namespace.as_deref()).to_owned(),
                may_be_empty: false,
            }),
            _ => Err(format!("expected version v1, found apiVersion {:?}", object.api_version)),
        })
    }

    /// Returns the request of an AdmissionReview, read as the webhook reads it.
    fn of_review(review: &Value) -> Option<Result<Self, String>> {
        let request = match AdmissionRequest::from_json(&review.to_string().into(), Instant::now()) {
            Ok(request) => request,
            Err(error) => return Some(Err(error.to_string())),
        };
        let text = |object: RawObject| String::from_utf8_lossy(object.as_bytes()).into_owned();
        let (is_evaluated, is_update) = match request.operation {
            Operation::Create => (true, false),
            Operation::Update => (true, true),
            _ => (false, false),
        };
        Some(Ok(Self {
            workload: Workload::from_kind(&request.kind.group, &request.kind.kind)?,
            subresource: request.sub_resource,
            object: request.object.filter(|_| is_evaluated).map(text),
            old: request.old_object.filter(|_| is_update).map(text),
            namespace: request.namespace.unwrap_or_default(),
            may_be_empty: true,
        }))
    }

    pub(super) fn request(&self, now: Timestamp) -> Request<'_> {
        Request::new(self.workload, &self.namespace, now)
            .with_subresource(self.subresource.as_deref())
            .with_object(self.object.as_deref().map(str::as_bytes))
            .with_old_object(self.old.as_deref().map(str::as_bytes))
    }

    pub(super) fn evaluated_path(&self) -> &'static str {
        match self.workload {
            Workload::Pod => "spec",
            Workload::PodTemplate => "template",
            Workload::CronJob => "spec.jobTemplate.spec.template",
            _ => "spec.template",
        }
    }

    pub(super) fn containers_path(&self) -> String {
        format!("{}{}.containers", self.evaluated_path(), if self.workload.is_pod() { "" } else { ".spec" })
    }
}
