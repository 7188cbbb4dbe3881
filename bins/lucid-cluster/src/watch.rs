//! Keeps the configuration in step with the API server.

use std::collections::BTreeMap;
use std::convert::Infallible;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use lucid_chain::keys;
use lucid_webhook::Condition;

use crate::ClusterConfiguration;
use crate::state::State;

impl ClusterConfiguration {
    /// Watches in a task of its own; returns `synced`.
    #[must_use]
    pub fn keep(&self, client: Client, namespace: &str, synced: Condition) -> Condition {
        let (this, namespace, condition) = (self.clone(), namespace.to_owned(), synced.clone());
        tokio::spawn(async move { match this.watch(client, &namespace, &condition).await {} });
        synced
    }

    /// Watches ConfigMap `lucid-auditors` of `namespace` and the ConfigMaps `lucid-auditor-chain` of all namespaces,
    /// for as long as the future is polled. `synced` holds once requests can be answered.
    pub async fn watch(&self, client: Client, namespace: &str, synced: &Condition) -> Infallible {
        let update = |change: &mut dyn FnMut(&mut State)| {
            self.change(change);
            synced.set(self.namespace("").is_ok());
        };

        let mut listed = false;
        let catalogue =
            each_event(Api::namespaced(client.clone(), namespace), keys::CATALOGUE_CONFIG_MAP, |event| {
                match event {
                    Event::Init => listed = false,
                    Event::InitApply(map) | Event::Apply(map) => {
                        listed = true;
                        let data = map.data.unwrap_or_default();
                        update(&mut |state| state.set_catalogue(namespace, Some(&data)));
                    }
                    Event::InitDone if listed => {}
                    Event::InitDone | Event::Delete(_) => {
                        update(&mut |state| state.set_catalogue(namespace, None))
                    }
                }
            });

        // A list takes effect as a whole.
        let mut listed = BTreeMap::new();
        let chains = each_event(Api::all(client), keys::NAMESPACE_CONFIG_MAP, |event| match event {
            Event::Init => listed.clear(),
            Event::InitApply(map) => {
                listed.insert(map.namespace().unwrap_or_default(), map.data.unwrap_or_default());
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut listed);
                update(&mut |state| state.set_namespaces(&listed));
            }
            Event::Apply(map) => {
                let namespace = map.namespace().unwrap_or_default();
                let data = map.data.unwrap_or_default();
                update(&mut |state| state.set_namespace(&namespace, data.clone()));
            }
            Event::Delete(map) => {
                let namespace = map.namespace().unwrap_or_default();
                update(&mut |state| state.remove_namespace(&namespace));
            }
        });

        tokio::join!(catalogue, chains).0
    }
}

/// Hands every event on ConfigMaps called `name` to `handle`; errors are logged and retried with back-off.
async fn each_event(api: Api<ConfigMap>, name: &str, mut handle: impl FnMut(Event<ConfigMap>)) -> Infallible {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    loop {
        let mut events = watcher(api.clone(), config.clone()).default_backoff().boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => handle(event),
                Err(error) => {
                    let error = lucid_process::with_causes(&error);
                    tracing::warn!(config_map = name, error, "failed to watch ConfigMaps");
                }
            }
        }
    }
}
