//! Finds the owner of a pod.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use lucid_webhook::AdmissionRequest;
use moka::future::Cache;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::metadata::Metadata as ObjectMetadata;

/// Maximum length of object names and other identifying fields, in bytes.
const LONGEST: usize = 253;

/// The pod of a request, with its controller.
///
/// Its size is bounded and its controller is plausible. The author of a pod controls both, and the API server validates
/// neither before it calls webhooks.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    namespace: String,
    /// Name or, during creation, the `generateName` of a pod without a name.
    name: String,
    controller: Option<OwnerReference>,
}

impl Subject {
    pub(crate) fn of(request: &AdmissionRequest, metadata: &ObjectMetadata<'_>) -> Self {
        let name = if request.name.is_empty() { metadata.name() } else { &request.name };
        let owners = metadata.owner_references.and_then(|json| serde_json::from_str(json).ok());
        Self {
            namespace: request.namespace.clone().unwrap_or_default(),
            name: name.get(..name.floor_char_boundary(LONGEST)).unwrap_or_default().to_owned(),
            controller: controller_of(owners.unwrap_or_default()).filter(is_plausible),
        }
    }

    fn pod(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectReference::default()
        }
    }
}

/// Returns `true` if such an owner can exist. Its name becomes part of a URL path, and authors of pods choose it.
#[must_use]
pub fn is_plausible(owner: &OwnerReference) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
    let OwnerReference { api_version, kind, name, uid, .. } = owner;
    [api_version, kind, name, uid].into_iter().all(|text| (1..=LONGEST).contains(&text.len()))
        && name.bytes().all(plain)
        && !matches!(&**name, "." | "..")
}

fn controller_of(owners: Vec<OwnerReference>) -> Option<OwnerReference> {
    owners.into_iter().find(|owner| owner.controller == Some(true))
}

/// Finds the object that users look at: the Deployment of a ReplicaSet, the CronJob of a Job. Found ones are kept for an
/// hour.
pub struct Owners {
    client: Client,
    /// Keyed by the UID of a ReplicaSet or Job.
    controllers: Cache<String, Option<OwnerReference>>,
}

impl std::fmt::Debug for Owners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owners").finish_non_exhaustive()
    }
}

impl Owners {
    /// Creates a finder in the cluster of `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        const LIFE: Duration = Duration::from_hours(1);
        Self { client, controllers: Cache::builder().max_capacity(1_000).time_to_live(LIFE).build() }
    }

    /// Returns the object that an event about `subject` refers to: the topmost known controller, or else the pod.
    pub(super) async fn regarding(&self, subject: &Subject) -> ObjectReference {
        self.reference(&subject.namespace, subject.controller.clone()).await.unwrap_or_else(|| subject.pod())
    }

    /// Returns a reference to the topmost known controller of a pod in `namespace`, for an event. `None` for a pod without a
    /// controller, and for a mirror pod, whose Node is in no namespace.
    pub async fn reference(
        &self,
        namespace: &str,
        controller: Option<OwnerReference>,
    ) -> Option<ObjectReference> {
        let owner = controller.filter(|owner| owner.kind != "Node")?;
        let owner = self.topmost(namespace, owner).await;
        Some(ObjectReference {
            api_version: Some(owner.api_version),
            kind: Some(owner.kind),
            name: Some(owner.name),
            namespace: Some(namespace.to_owned()),
            uid: Some(owner.uid),
            ..ObjectReference::default()
        })
    }

    /// Returns the controller of `owner` if it has one and is found, or else `owner`.
    pub async fn topmost(&self, namespace: &str, owner: OwnerReference) -> OwnerReference {
        self.controller(namespace, &owner).await.unwrap_or(owner)
    }

    async fn controller(&self, namespace: &str, owner: &OwnerReference) -> Option<OwnerReference> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let found = async {
            match (group, &*owner.kind) {
                ("apps", "ReplicaSet") => self.look_up::<ReplicaSet>(namespace, owner).await,
                ("batch", "Job") => self.look_up::<Job>(namespace, owner).await,
                _ => None,
            }
        };
        self.controllers.optionally_get_with(owner.uid.clone(), found).await.flatten()
    }

    /// Returns the controller of `owner`. The outer `None` means that the lookup failed.
    async fn look_up<K>(&self, namespace: &str, owner: &OwnerReference) -> Option<Option<OwnerReference>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Metadata<Ty = ObjectMeta>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let found = timeout(super::PATIENCE, api.get_metadata_opt(&owner.name)).await.ok()?;
        let found = found.inspect_err(|error| tracing::debug!(%error, "failed to look up an owner")).ok()?;
        // The claimed owner may have been replaced, or may never have existed.
        let found = found.filter(|found| found.metadata.uid.as_deref() == Some(&owner.uid));
        Some(found.and_then(|found| controller_of(found.metadata.owner_references.unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use lucid_chain::PodView;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    fn subject(name: &str, owner: &Value, is_parsed: bool) -> Subject {
        let mut reference = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": true});
        reference.as_object_mut().unwrap().extend(owner.as_object().unwrap().clone());
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "shop",
                "operation": "CREATE", "userInfo": {},
                "object": {"metadata": {"generateName": name, "ownerReferences": [reference]}, "spec": {}},
            },
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        let request = AdmissionRequest::from_json(&Bytes::from(review.to_string()), deadline).unwrap();
        let pod = PodView::from_json(request.object.as_ref().unwrap().as_bytes()).unwrap();
        Subject::of(&request, &ObjectMetadata::of(&request, Some(&pod).filter(|_| is_parsed)))
    }

    #[test]
    fn impossible_owners_are_ignored_and_names_truncated() {
        for is_parsed in [false, true] {
            let found = subject("web-", &json!({}), is_parsed);
            assert_eq!((&*found.name, &*found.controller.unwrap().name), ("web-", "web-1"));
        }
        let long = "x".repeat(1 << 20);
        for owner in [
            json!({"uid": long}),
            json!({"kind": long}),
            json!({"apiVersion": long}),
            json!({"name": long}),
            json!({"name": ""}),
            json!({"name": ".."}),
            json!({"name": "x/../../services/y/proxy"}),
            json!({"name": "x?watch=true"}),
            json!({"name": "x%2f.."}),
        ] {
            let found = subject(&long, &owner, true);
            assert_eq!(found.controller, None, "{}", owner.to_string().get(..80).unwrap_or_default());
            assert_eq!(found.name.len(), LONGEST);
        }
    }
}
