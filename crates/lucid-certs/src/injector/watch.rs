//! Watches of the Secrets and Certificates that objects depend on.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PartialObjectMeta},
    core::GroupVersionKind,
    runtime::watcher::Config,
};
use tokio::sync::watch::{Receiver, Sender};

use super::annotation::ObjectName;
use crate::watch::{changes, only};

pub(super) const CERTIFICATE_CRD: &str = "certificates.cert-manager.io";

/// An input of a reconciliation. A change triggers another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dependency {
    Secret(ObjectName),
    /// All Secrets of a namespace, because any of them may get the annotation.
    SecretsOf(String),
    Certificate(ObjectName),
    /// Existence of the Certificate CRD.
    CertificateKind,
}

impl Dependency {
    /// Watches the metadata. Single objects are watched by name, so that permissions with `resourceNames` are
    /// sufficient.
    fn changes(&self, client: Client) -> BoxStream<'static, ()> {
        let secrets = ApiResource::erase::<Secret>(&());
        let (resource, namespace, name, what) = match self {
            Self::Secret(it) => (secrets, Some(&it.namespace), Some(&*it.name), format!("Secret {it}")),
            Self::SecretsOf(namespace) => {
                (secrets, Some(namespace), None, format!("Secrets of namespace {namespace}"))
            }
            Self::Certificate(it) => {
                (certificate_resource(), Some(&it.namespace), Some(&*it.name), format!("Certificate {it}"))
            }
            Self::CertificateKind => {
                let resource = ApiResource::erase::<CustomResourceDefinition>(&());
                (resource, None, Some(CERTIFICATE_CRD), format!("CustomResourceDefinition {CERTIFICATE_CRD}"))
            }
        };
        let api: Api<PartialObjectMeta<DynamicObject>> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        changes(api, name.map_or_else(Config::default, only), what)
    }
}

/// One watch of each dependency, for all objects that have it.
pub(super) struct Watches {
    client: Client,
    senders: Mutex<BTreeMap<Dependency, Sender<()>>>,
}

impl Watches {
    pub(super) fn new(client: Client) -> Self {
        Self { client, senders: Mutex::default() }
    }

    /// Returns a receiver of changes. The dependency is watched while it has receivers.
    pub(super) fn subscribe(&self, dependency: &Dependency) -> Receiver<()> {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.retain(|_, sender| !sender.is_closed());
        if let Some(sender) = senders.get(dependency) {
            return sender.subscribe();
        }
        let sender = Sender::new(());
        let receiver = sender.subscribe();
        senders.insert(dependency.clone(), sender.clone());
        let mut changes = dependency.changes(self.client.clone());
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = sender.closed() => return,
                    Some(()) = changes.next() => sender.send_replace(()),
                }
            }
        });
        receiver
    }
}

pub(super) fn certificate_resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"),
        "certificates",
    )
}
