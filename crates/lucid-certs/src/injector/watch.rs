//! Watches of objects and their dependencies.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, PartialObjectMeta},
    runtime::watcher::{Config, Event},
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

use super::{
    annotation::CaReference,
    authority::{CERTIFICATE_CRD, Dependency, certificate_resource},
    object::{Kind, Object},
};
use crate::watch::{self, is_change, only};

#[derive(Debug)]
pub(super) enum Signal {
    /// An object was created or changed; `is_annotated` is `true` if it requests a CA.
    Seen {
        object: Object,
        is_annotated: bool,
    },
    Gone(Object),
    /// All objects of a kind are listed; others do not exist.
    Listed(Kind),
    /// Dependents of the dependency have to be reconciled.
    Changed(Dependency),
}

/// Watches the metadata of all objects of a kind.
pub(super) async fn objects(client: Client, kind: Kind, signals: Sender<Signal>) {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &kind.resource());
    // Also detects the Certificate CRD.
    let is_certificates = |name: &str| kind == Kind::CustomResourceDefinition && name == CERTIFICATE_CRD;
    let and_certificates = |signal, changed: bool| {
        let certificates = changed.then_some(Signal::Changed(Dependency::CertificateKind));
        [signal].into_iter().chain(certificates).collect()
    };
    follow(api, Config::default(), format!("{kind}s"), &signals, |event| match event {
        Event::Apply(object) | Event::InitApply(object) => {
            let is_annotated = !matches!(CaReference::of(kind, object.annotations()), Ok(None));
            let seen = Signal::Seen { is_annotated, object: Object::of(kind, &object) };
            and_certificates(seen, is_certificates(&object.name_any()))
        }
        Event::Delete(object) => {
            and_certificates(Signal::Gone(Object::of(kind, &object)), is_certificates(&object.name_any()))
        }
        Event::InitDone => and_certificates(Signal::Listed(kind), is_certificates(CERTIFICATE_CRD)),
        Event::Init => vec![],
    })
    .await;
}

/// Watches the metadata of a dependency. Single objects are watched by name, so that permissions with
/// `resourceNames` are sufficient.
pub(super) async fn dependency(client: Client, dependency: Dependency, signals: Sender<Signal>) {
    let changed =
        |is_change: bool| is_change.then(|| Signal::Changed(dependency.clone())).into_iter().collect();
    match &dependency {
        // Detected by the watch of CustomResourceDefinitions.
        Dependency::CertificateKind => {}
        Dependency::Secret(name) => {
            let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client, &name.namespace);
            let what = format!("Secret {name}");
            follow(api, only(&name.name), what, &signals, |event| changed(is_change(&event))).await;
        }
        Dependency::SecretsOf(namespace) => {
            let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client, namespace);
            let what = format!("Secrets of namespace {namespace}");
            follow(api, Config::default(), what, &signals, |event| changed(is_change(&event))).await;
        }
        Dependency::Certificate(name) => {
            let resource = certificate_resource();
            let api: Api<PartialObjectMeta<DynamicObject>> =
                Api::namespaced_with(client, &name.namespace, &resource);
            let what = format!("Certificate {name}");
            follow(api, only(&name.name), what, &signals, |event| changed(is_change(&event))).await;
        }
    }
}

/// `InitDone` counts as a change, because something may have changed before the list.
/// Sends the signals that `to_signals` derives from each event. Retries errors and logs each distinct one once.
async fn follow<K>(
    api: Api<K>,
    config: Config,
    what: String,
    signals: &Sender<Signal>,
    to_signals: impl Fn(Event<K>) -> Vec<Signal>,
) where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut events = pin!(watch::events(api, config, what));
    while let Some(event) = events.next().await {
        for signal in to_signals(event) {
            if signals.send(signal).await.is_err() {
                return;
            }
        }
    }
}
