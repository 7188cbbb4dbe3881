//! Hearing of changes

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DynamicObject, PartialObjectMeta},
    runtime::{
        WatchStreamExt,
        watcher::{Config, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tracing::{info, warn};

use super::{
    authority::{CERTIFICATE_CRD, Dependency, certificate_resource},
    object::{Kind, Object},
    wish::Wish,
};
use crate::chain;

/// What was heard
#[derive(Debug)]
pub(super) enum Signal {
    /// An object is there, new or changed, and asks for a CA or not
    Seen { object: Object, asks: bool },
    /// An object is gone
    Gone(Object),
    /// All objects of a kind were heard of: those that were not are gone
    Listed(Kind),
    /// Another look is due at what depends on it
    Changed(Dependency),
}

/// Hears of the objects of a kind, until it is dropped. Only their metadata is read.
pub(super) async fn objects(client: Client, kind: Kind, signals: Sender<Signal>) {
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &kind.resource());
    // Whether there are Certificates at all is seen here, too.
    let is_certificates = |name: &str| kind == Kind::CustomResourceDefinition && name == CERTIFICATE_CRD;
    let and_certificates = |signal, changed: bool| {
        let certificates = changed.then_some(Signal::Changed(Dependency::CertificateKind));
        [signal].into_iter().chain(certificates).collect()
    };
    follow(api, Config::default(), format!("{kind}s"), &signals, |event| match event {
        Event::Apply(object) | Event::InitApply(object) => {
            let asks = !matches!(Wish::of(kind, object.annotations()), Ok(None));
            let seen = Signal::Seen { asks, object: Object::of(kind, &object) };
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

/// Hears of changes of what a CA comes from, until it is dropped. Only metadata is read, and of one object where one
/// is meant, so that rights to named Secrets are enough.
pub(super) async fn dependency(client: Client, dependency: Dependency, signals: Sender<Signal>) {
    let changed =
        |is_change: bool| is_change.then(|| Signal::Changed(dependency.clone())).into_iter().collect();
    let only = |name: &str| Config::default().fields(&format!("metadata.name={name}"));
    match &dependency {
        // Heard of with the objects of the kind CustomResourceDefinition.
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

/// The end of a list counts as well: something may have changed before it began.
fn is_change<K>(event: &Event<K>) -> bool {
    matches!(event, Event::Apply(_) | Event::Delete(_) | Event::InitDone)
}

/// Sends what `hear` makes of each event. Errors are retried, and logged when they differ from the one before.
async fn follow<K>(
    api: Api<K>,
    config: Config,
    what: String,
    signals: &Sender<Signal>,
    hear: impl Fn(Event<K>) -> Vec<Signal>,
) where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut broken: Option<String> = None;
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let error = chain(&error);
                if broken.as_ref() != Some(&error) {
                    warn!(error, "failed to watch {what}; it is tried again");
                }
                broken = Some(error);
                continue;
            }
        };
        // A list that begins has not succeeded yet.
        if !matches!(event, Event::Init) && broken.take().is_some() {
            info!("watching {what} again");
        }
        for signal in hear(event) {
            if signals.send(signal).await.is_err() {
                return;
            }
        }
    }
}
