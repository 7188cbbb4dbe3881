//! Watches that keep the state in sync with the API server.

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::{pending, ready};
use std::pin::pin;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{DynamicObject, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, ExponentialBackoff, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use lucid_chain::keys;
use lucid_text::with_causes;
use lucid_webhook::Condition;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::watch as channel;

use crate::ClusterConfiguration;
use crate::cluster::auditor;
use crate::cluster::generations;
use crate::cluster::namespaces::{Change, Data, Labels};
use crate::cluster::{permissions, policy};

/// Time during which changes of Auditor objects are collected. Applying a list of objects causes an event for each.
const AUDITOR_PACE: Duration = Duration::from_millis(50);
/// Delay after a change before unused chains are parsed.
const CATCH_UP_PACE: Duration = Duration::from_secs(1);

impl ClusterConfiguration {
    /// Starts a task that follows the cluster: ConfigMaps `lucid-auditors`, `lucid-auditors-canary`, `lucid-policy` and
    /// `lucid-webhooks` of `namespace`, the Auditors, the ConfigMaps `lucid-auditor-chain` of all namespaces, the labels of the namespaces,
    /// and the settings of other replicas. Sets `synced` while requests can be served, and returns it. With
    /// [publishing](Self::with_publishing), `synced` also waits for the first attempt.
    ///
    /// If the Auditor resource is not defined, its list counts as empty. The watch starts as soon as it is defined.
    pub fn start(&self, client: Client, namespace: &str, synced: Condition) -> Condition {
        self.state.known.send_modify(|known| known.has_published = !self.publishes);
        let (this, namespace, condition) = (self.clone(), namespace.to_owned(), synced.clone());
        tokio::spawn(async move {
            let in_namespace = Api::namespaced(client.clone(), &namespace);
            tokio::join!(
                this.follow_catalogue(in_namespace.clone(), &namespace),
                this.follow_canary(in_namespace.clone(), &namespace),
                this.follow_generations(in_namespace.clone()),
                this.follow_permissions(in_namespace.clone(), &namespace),
                this.follow_policy(in_namespace.clone(), &namespace),
                this.follow_chains(Api::all(client.clone())),
                this.follow_namespaces(Api::all(client.clone())),
                this.follow_auditors(client),
                this.publish(in_namespace),
                this.catch_up_all(),
                this.report_sync(condition),
            )
        });
        synced
    }

    async fn report_sync(&self, condition: Condition) -> Infallible {
        let mut changes = self.state.known.subscribe();
        loop {
            condition.set(self.is_synced());
            // The sender outlives the receiver.
            changes.changed().await.ok();
        }
    }

    async fn follow_catalogue(&self, api: Api<ConfigMap>, namespace: &str) -> Infallible {
        let changes = changes("ConfigMap lucid-auditors", api, named(keys::CATALOGUE_CONFIG_MAP), data);
        each_state(changes, |data| self.set_catalogue(namespace, data.as_ref())).await
    }

    async fn follow_canary(&self, api: Api<ConfigMap>, namespace: &str) -> Infallible {
        let changes = changes("ConfigMap lucid-auditors-canary", api, named(keys::CANARY_CONFIG_MAP), data);
        each_state(changes, |data| self.set_canary(namespace, data.as_ref())).await
    }

    async fn follow_permissions(&self, api: Api<ConfigMap>, namespace: &str) -> Infallible {
        let changes = changes("ConfigMap lucid-webhooks", api, named(permissions::CONFIG_MAP), data);
        each_state(changes, |data| self.set_permissions(namespace, data.as_ref())).await
    }

    async fn follow_policy(&self, api: Api<ConfigMap>, namespace: &str) -> Infallible {
        let read = |map: ConfigMap| (manager_of(&map, policy::MODE), data(map));
        let changes = changes("ConfigMap lucid-policy", api, named(policy::CONFIG_MAP), read);
        each_state(changes, |state| {
            let (manager, data) = state.unzip();
            self.set_policy(namespace, data.as_ref(), manager.flatten());
        })
        .await
    }

    async fn follow_generations(&self, api: Api<ConfigMap>) -> Infallible {
        let changes = changes("ConfigMap lucid-generations", api, named(generations::CONFIG_MAP), data);
        each_state(changes, |data| self.set_generations(&data.unwrap_or_default())).await
    }

    async fn follow_chains(&self, api: Api<ConfigMap>) -> Infallible {
        let read = |map: ConfigMap| (map.namespace().unwrap_or_default(), data(map));
        let changes = changes("ConfigMaps lucid-auditor-chain", api, named(keys::NAMESPACE_CONFIG_MAP), read);
        each(changes, |change| self.change_chains(change)).await
    }

    /// Keeps only the settings from labels and annotations of each namespace.
    async fn follow_namespaces(&self, api: Api<PartialObjectMeta<Namespace>>) -> Infallible {
        let read = |namespace: PartialObjectMeta<Namespace>| {
            (namespace.name_any(), Labels::of(namespace.labels(), namespace.annotations()))
        };
        let changes = changes("namespaces", api, watcher::Config::default(), read);
        each(changes, |change| self.change_labels(change)).await
    }

    /// Watches only while the CustomResourceDefinition exists: watching an undefined resource fails.
    async fn follow_auditors(&self, client: Client) -> Infallible {
        // Uid of the definition, if it exists; the outer `None` means unknown.
        let (defined, mut is_defined) = channel::channel(None::<Option<String>>);
        let api = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone());
        let read = |definition: PartialObjectMeta<CustomResourceDefinition>| definition.uid();
        let what = "CustomResourceDefinition auditors.lucid.computing";
        let definition = each_state(changes(what, api, named(auditor::CRD_NAME), read), |uid| {
            let uid = Some(uid.flatten());
            defined.send_if_modified(|known| {
                *known != uid && {
                    *known = uid;
                    true
                }
            });
        });
        let objects = async {
            loop {
                let is_known = is_defined.borrow_and_update().as_ref().map(Option::is_some);
                let follow = async {
                    match is_known {
                        None => pending().await,
                        Some(true) => self.follow_defined_auditors(client.clone()).await,
                        Some(false) => {
                            self.change_auditors(|auditors| auditors.set_all(Vec::new()));
                            pending().await
                        }
                    }
                };
                tokio::select! {
                    never = follow => match never {},
                    _ = is_defined.changed() => {}
                }
            }
        };
        tokio::join!(definition, objects).0
    }

    async fn follow_defined_auditors(&self, client: Client) -> Infallible {
        let api = Api::<DynamicObject>::all_with(client, &auditor::resource());
        // Managed fields, the largest part of an object, are not used.
        let read = |mut object: DynamicObject| {
            object.metadata.managed_fields = None;
            object
        };
        // The API server serves a new resource after a short delay, so the first attempt may fail.
        let mut changes = pin!(changes("Auditors", api, watcher::Config::default(), read));
        while let Some(first) = changes.next().await {
            let more = changes.by_ref().take_until(tokio::time::sleep(AUDITOR_PACE));
            let more: Vec<_> = more.collect().await;
            self.change_auditors(|auditors| {
                for change in std::iter::once(first).chain(more) {
                    match change {
                        Change::All(listed) => auditors.set_all(listed),
                        Change::Set(object) => auditors.set(object),
                        Change::Removed(object) => auditors.remove(&object.name_any()),
                    }
                }
            });
        }
        pending().await
    }

    async fn publish(&self, api: Api<ConfigMap>) -> Infallible {
        if !self.publishes {
            return pending().await;
        }
        let mut has_failed = false;
        loop {
            let renewed = self.renew(&api).await;
            if let Some(error) = renewed.as_ref().err().filter(|_| !has_failed) {
                let error = with_causes(error);
                tracing::warn!(
                    error,
                    "failed to publish the settings; replicas with other settings refuse the chains of this one"
                );
            }
            has_failed = renewed.is_err();
            self.state.known.send_modify(|known| known.has_published = true);
            tokio::time::sleep(generations::RENEW_INTERVAL).await;
        }
    }

    async fn renew(&self, api: &Api<ConfigMap>) -> Result<(), kube::Error> {
        let name = generations::CONFIG_MAP;
        let generation = self.generation();
        let value = generations::published(&self.state.published).map_err(kube::Error::SerdeError)?;
        let applied = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {generation: value},
        });
        let params = PatchParams::apply(&format!("lucid-generation-{generation}")).force();
        let obsolete = self.obsolete_generations();
        if !obsolete.is_empty() {
            let removed: Map<String, Value> = obsolete.into_iter().map(|id| (id, Value::Null)).collect();
            api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"data": removed}))).await?;
        }
        api.patch(name, &params, &Patch::Apply(applied)).await.map(drop)
    }

    /// Parses the chains of unused namespaces, one at a time and with low priority.
    async fn catch_up_all(&self) -> Infallible {
        let mut changes = self.state.known.subscribe();
        loop {
            changes.borrow_and_update();
            for namespace in self.with_chains() {
                self.catch_up(&namespace);
                tokio::task::yield_now().await;
            }
            // The state owns the sender, so this never fails.
            changes.changed().await.ok();
            tokio::time::sleep(CATCH_UP_PACE).await;
        }
    }
}

/// Watches objects, of which `read` returns the relevant part. A list takes effect as a whole. Errors are logged, and
/// the watch is retried.
fn changes<K, T>(
    what: &'static str,
    api: Api<K>,
    config: watcher::Config,
    read: impl Fn(K) -> T,
) -> impl Stream<Item = Change<T>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    // Short delays, so that a replica is ready soon after an outage of the API server.
    let delays = ExponentialBuilder::default().with_max_delay(Duration::from_secs(5)).with_jitter();
    let backoff: ExponentialBackoff = delays.without_max_times().into();
    let mut listed = Vec::new();
    watcher(api, config).backoff(backoff).filter_map(move |event| {
        ready(match event {
            Ok(Event::Init) => {
                listed.clear();
                None
            }
            Ok(Event::InitApply(object)) => {
                listed.push(read(object));
                None
            }
            Ok(Event::InitDone) => Some(Change::All(std::mem::take(&mut listed))),
            Ok(Event::Apply(object)) => Some(Change::Set(read(object))),
            Ok(Event::Delete(object)) => Some(Change::Removed(read(object))),
            Err(error) => {
                let error = with_causes(&error);
                tracing::warn!(what, error, "failed to watch; it is tried again");
                None
            }
        })
    })
}

/// Selects objects called `name`. With this selector, RBAC permission by `resourceNames` suffices.
fn named(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// Returns the field manager that last wrote the `key` of a ConfigMap.
fn manager_of(map: &ConfigMap, key: &str) -> Option<String> {
    let field = format!("f:{key}");
    let owns = |entry: &&ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:data"));
        fields.is_some_and(|data| data.get(&field).is_some())
    };
    let owners = map.metadata.managed_fields.iter().flatten().filter(owns);
    owners.max_by_key(|entry| entry.time.clone())?.manager.clone()
}

fn data(map: ConfigMap) -> Data {
    map.data.unwrap_or_default()
}

/// Passes every item to `handle`. The stream of a watcher never ends.
async fn each<T>(items: impl Stream<Item = T>, mut handle: impl FnMut(T)) -> Infallible {
    let mut items = pin!(items);
    while let Some(item) = items.next().await {
        handle(item);
    }
    pending().await
}

/// Passes every state of a single object to `handle`; `None` means that it does not exist.
async fn each_state<T>(
    changes: impl Stream<Item = Change<T>>,
    mut handle: impl FnMut(Option<T>),
) -> Infallible {
    let state = |change| match change {
        Change::All(mut listed) => listed.pop(),
        Change::Set(object) => Some(object),
        Change::Removed(_) => None,
    };
    each(changes, |change| handle(state(change))).await
}
