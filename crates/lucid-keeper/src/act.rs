//! Performs steps by the API server.
//!
//! Each request carries what was decided on: the resource version of the pod or workload, or the pod's UID. A step that was
//! decided on an older state fails with a conflict and is decided again.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use lucid_admission::Owners;
use lucid_chain::keys;
use lucid_text::with_causes;
use serde_json::{Value, json};

use crate::compare::Update;
use crate::fleet::RunningPod;
use crate::steps::Step;

/// Annotation of a pod template that `kubectl rollout restart` writes.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
const FIELD_MANAGER: &str = "lucid-keeper";

/// Outcome of a step.
#[derive(Debug)]
pub(crate) enum Done {
    /// It is done, as the text says.
    Yes(String),
    /// Not now, with the reason.
    NotYet(String),
    /// The API server refused, or did not answer.
    Failed(String),
}

/// `prompt` does not repeat requests.
pub(crate) async fn perform(
    client: &Client,
    prompt: &Client,
    owners: &Owners,
    pod: &RunningPod,
    step: &Step,
) -> Done {
    let done = match step {
        Step::Update(update) => self::update(client, pod, update).await,
        Step::Evict => evict(prompt, pod).await,
        Step::Rollout => restart(client, owners, pod).await,
    };
    match done {
        Ok(Ok(text)) => Done::Yes(text),
        Ok(Err(reason)) => Done::NotYet(reason),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            Done::NotYet("the object has changed meanwhile".to_owned())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Done::NotYet("the object is gone".to_owned()),
        // A PodDisruptionBudget forbids the eviction.
        Err(kube::Error::Api(status)) if status.code == 429 => Done::NotYet(status.message.clone()),
        Err(error) => Done::Failed(with_causes(&error)),
    }
}

/// Done, or the reason why not yet.
type Attempt = kube::Result<Result<String, String>>;

async fn update(client: &Client, pod: &RunningPod, update: &Update) -> Attempt {
    let containers: Vec<_> =
        update.images.iter().map(|(name, image)| json!({"name": name, "image": image})).collect();
    let mut patch = json!({
        "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version},
        "spec": {update.list: containers},
    });
    if let Some(status) = &update.status {
        patch["metadata"]["annotations"] = json!({ keys::STATUS: status });
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    pods.patch(&pod.name, &params(), &Patch::Strategic(patch)).await?;
    let images: Vec<_> = update.images.iter().map(|(name, image)| format!("{name}: {image}")).collect();
    Ok(Ok(format!("images changed in the running pod: {}", images.join(", "))))
}

async fn evict(client: &Client, pod: &RunningPod) -> Attempt {
    let Some(owner) = &pod.controller else { return Ok(Err("it has no controller".to_owned())) };
    let found = get(client, &pod.namespace, owner).await?;
    if let Err(reason) = may_evict(owner, &found.data["spec"], &found.data["status"], pod.is_ready) {
        return Ok(Err(reason));
    }
    // kube's `evict` sends the preconditions under another key, which the API server ignores.
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid, "resourceVersion": pod.resource_version}},
    });
    let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", pod.namespace, pod.name);
    let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(eviction.to_string().into_bytes());
    let request = request
        .map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))?;
    let evicted = client.request::<Value>(request).await;
    evicted.map(|_| Ok("evicted, to be created again with the planned chain".to_owned()))
}

/// Returns an error unless all pods that the controller wants are ready, but for the one to be evicted if it is not.
pub(crate) fn may_evict(
    owner: &OwnerReference,
    spec: &Value,
    status: &Value,
    is_ready: bool,
) -> Result<(), String> {
    let (wanted, ready) = match owner.kind.as_str() {
        "DaemonSet" => (&status["desiredNumberScheduled"], &status["numberReady"]),
        _ => (&spec["replicas"], &status["readyReplicas"]),
    };
    let (wanted, ready) = (wanted.as_u64().unwrap_or(1), ready.as_u64().unwrap_or_default());
    if ready + u64::from(!is_ready) < wanted {
        return Err(format!("{} {} has {ready} of {wanted} pods ready", owner.kind, owner.name));
    }
    Ok(())
}

async fn restart(client: &Client, owners: &Owners, pod: &RunningPod) -> Attempt {
    let Some(owner) = pod.controller.clone() else { return Ok(Err("it has no controller".to_owned())) };
    let owner = owners.topmost(&pod.namespace, (*owner).clone()).await;
    let is_known = matches!(owner.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet");
    if owner.api_version != "apps/v1" || !is_known {
        return Ok(Err(format!("{} {} cannot be restarted", owner.kind, owner.name)));
    }
    let found = get(client, &pod.namespace, &owner).await?;
    if let Err(reason) = may_restart(&owner, &found.data["spec"], pod.created) {
        return Ok(Err(reason));
    }
    let annotations = json!({ RESTARTED_AT: Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string() });
    let patch = json!({
        "metadata": {"uid": owner.uid, "resourceVersion": found.metadata.resource_version},
        "spec": {"template": {"metadata": {"annotations": annotations}}},
    });
    api(client, &pod.namespace, &owner).patch(&owner.name, &params(), &Patch::Merge(patch)).await?;
    Ok(Ok(format!("{} {} restarted", owner.kind, owner.name)))
}

/// Returns an error if the workload is paused, or was restarted after the pod was `created`, which the restart replaces.
pub(crate) fn may_restart(
    owner: &OwnerReference,
    spec: &Value,
    created: Option<Timestamp>,
) -> Result<(), String> {
    if spec["paused"] == true {
        return Err(format!("{} {} is paused", owner.kind, owner.name));
    }
    let restarted = spec["template"]["metadata"]["annotations"][RESTARTED_AT].as_str();
    let restarted = restarted.and_then(|time| time.parse::<Timestamp>().ok());
    match restarted.zip(created) {
        Some((restarted, created)) if restarted >= created => {
            Err(format!("{} {} was restarted at {restarted}", owner.kind, owner.name))
        }
        _ => Ok(()),
    }
}

/// Reads an owner; one that was replaced counts as not found.
async fn get(client: &Client, namespace: &str, owner: &OwnerReference) -> kube::Result<DynamicObject> {
    let found = api(client, namespace, owner).get(&owner.name).await?;
    if found.metadata.uid.as_deref() == Some(&owner.uid) {
        return Ok(found);
    }
    let status = kube::core::Status::failure("the owner was replaced", "NotFound").with_code(404);
    Err(kube::Error::Api(status.boxed()))
}

fn api(client: &Client, namespace: &str, owner: &OwnerReference) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apps", "v1", &owner.kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
