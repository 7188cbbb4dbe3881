//! Whose pod it is.

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use lucid_webhook::AdmissionRequest;
use moka::future::Cache;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// The longest name of an object, and of anything else that tells which one is meant, in bytes.
const LONGEST: usize = 253;

/// The pod of a request, and who made it.
///
/// Its size has a bound, and its owner could exist: who writes a pod writes both, and the API server looks at neither before
/// it asks webhooks.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    namespace: String,
    /// As far as it is known: while it is made, a pod may have only the beginning of one.
    name: String,
    controller: Option<OwnerReference>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Metadatum,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadatum {
    name: String,
    generate_name: String,
    owner_references: Vec<OwnerReference>,
}

impl Subject {
    pub(super) fn of(request: &AdmissionRequest) -> Self {
        let object = request.object.as_ref().and_then(|object| object.view::<Named>().ok());
        let Metadatum { name, generate_name, owner_references } = object.unwrap_or_default().metadata;
        let name = [request.name.clone(), name, generate_name].into_iter().find(|name| !name.is_empty());
        let mut name = name.unwrap_or_default();
        name.truncate(name.floor_char_boundary(LONGEST));
        Self {
            namespace: request.namespace.clone().unwrap_or_default(),
            name,
            controller: controller_of(owner_references).filter(is_plausible),
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

    fn of_owner(&self, owner: OwnerReference) -> ObjectReference {
        ObjectReference {
            api_version: Some(owner.api_version),
            kind: Some(owner.kind),
            name: Some(owner.name),
            namespace: Some(self.namespace.clone()),
            uid: Some(owner.uid),
            ..ObjectReference::default()
        }
    }
}

/// Whether there could be such an owner. Its name becomes part of a path.
fn is_plausible(owner: &OwnerReference) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':');
    let OwnerReference { api_version, kind, name, uid, .. } = owner;
    [api_version, kind, name, uid].into_iter().all(|text| (1..=LONGEST).contains(&text.len()))
        && name.bytes().all(plain)
        && !matches!(&**name, "." | "..")
}

fn controller_of(owners: Vec<OwnerReference>) -> Option<OwnerReference> {
    owners.into_iter().find(|owner| owner.controller == Some(true))
}

/// Knows which object users look at: the Deployment, not its ReplicaSet, and the CronJob, not its Job.
pub(super) struct Owners {
    client: Client,
    /// By the uid of a ReplicaSet or a Job.
    controllers: Cache<String, Option<OwnerReference>>,
}

impl Owners {
    pub(super) fn new(client: Client) -> Self {
        const LIFE: Duration = Duration::from_hours(1);
        Self { client, controllers: Cache::builder().max_capacity(1_000).time_to_live(LIFE).build() }
    }

    /// The object that an event about `subject` is about: the pod's controller, or that one's, or else the pod.
    pub(super) async fn regarding(&mut self, subject: &Subject) -> ObjectReference {
        match subject.controller.clone() {
            // The pod of a manifest on the node: an event about a Node would not be in the pod's namespace.
            Some(owner) if owner.kind != "Node" => {
                let controller = self.controller(&subject.namespace, &owner).await;
                subject.of_owner(controller.unwrap_or(owner))
            }
            _ => subject.pod(),
        }
    }

    async fn controller(&mut self, namespace: &str, owner: &OwnerReference) -> Option<OwnerReference> {
        if let Some(known) = self.controllers.get(&owner.uid).await {
            return known;
        }
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let found = match (group, &*owner.kind) {
            ("apps", "ReplicaSet") => self.look_up::<ReplicaSet>(namespace, owner).await?,
            ("batch", "Job") => self.look_up::<Job>(namespace, owner).await?,
            _ => return None,
        };
        self.controllers.insert(owner.uid.clone(), found.clone()).await;
        found
    }

    /// The controller of `owner`; `None` when it could not be asked.
    async fn look_up<K>(&self, namespace: &str, owner: &OwnerReference) -> Option<Option<OwnerReference>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Metadata<Ty = ObjectMeta>,
        K: Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let found = timeout(super::PATIENCE, api.get_metadata_opt(&owner.name)).await.ok()?;
        let found = found.inspect_err(|error| tracing::debug!(%error, "failed to look up an owner")).ok()?;
        // A pod may claim an owner that is another by now, or never was.
        let found = found.filter(|found| found.metadata.uid.as_deref() == Some(&owner.uid));
        Some(found.and_then(|found| controller_of(found.metadata.owner_references.unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    fn subject(name: &str, owner: Value) -> Subject {
        let mut reference = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": true});
        reference.as_object_mut().unwrap().extend(owner.as_object().unwrap().clone());
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
                "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "shop",
                "operation": "CREATE", "userInfo": {},
                "object": {"metadata": {"generateName": name, "ownerReferences": [reference]}},
            },
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        Subject::of(&AdmissionRequest::from_json(&Bytes::from(review.to_string()), deadline).unwrap())
    }

    #[test]
    fn an_owner_that_cannot_exist_is_none_and_a_name_is_no_longer_than_names_are() {
        let found = subject("web-", json!({}));
        assert_eq!((&*found.name, &*found.controller.unwrap().name), ("web-", "web-1"));
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
            let found = subject(&long, owner.clone());
            assert_eq!(found.controller, None, "{}", owner.to_string().get(..80).unwrap_or_default());
            assert_eq!(found.name.len(), LONGEST);
        }
    }
}
