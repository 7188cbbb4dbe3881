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

/// The pod of a request, and who made it.
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
        Self {
            namespace: request.namespace.clone().unwrap_or_default(),
            name: name.unwrap_or_default(),
            controller: controller_of(owner_references),
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
