//! Watches that keep the state in sync with the API server.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, PartialObjectMeta, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, ExponentialBackoff, watcher};
use kube::{Api, Client, ResourceExt};
use lucid_chain::keys;
use lucid_webhook::{Condition, with_causes};
use serde_json::{Map, Value, json};
use tokio::sync::watch as channel;
use tokio::time::{Instant, timeout_at};

use crate::ClusterConfiguration;
use crate::cluster::auditor;
use crate::cluster::generations;
use crate::cluster::namespaces::{Data, Labels};
use crate::cluster::state::State;

/// Debounce interval for changes of Auditor objects. Applying a list of objects causes an event for each.
const COLLECTED: Duration = Duration::from_millis(50);
/// Delay after a change before unused chains are parsed.
const CATCH_UP_PACE: Duration = Duration::from_secs(1);

impl ClusterConfiguration {
    /// Starts a task that follows the cluster: ConfigMap `lucid-auditors` of `namespace`, the Auditors, the ConfigMaps
    /// `lucid-auditor-chain` of all namespaces, the labels of the namespaces, and the settings of other replicas. Sets
    /// `synced` while requests can be answered, and returns it. With [publishing](Self::with_publishing), `synced` also
    /// waits for the first attempt.
    ///
    /// If the Auditor resource is not defined, its list counts as empty. The watch starts as soon as it is defined.
    pub fn start(&self, client: Client, namespace: &str, synced: Condition) -> Condition {
        let (state, publishes) = (Arc::clone(&self.state), self.publishes);
        let (namespace, condition) = (namespace.to_owned(), synced.clone());
        tokio::spawn(async move { match state.follow(client, &namespace, publishes, &condition).await {} });
        synced
    }
}

impl State {
    async fn follow(
        &self,
        client: Client,
        namespace: &str,
        publishes: bool,
        synced: &Condition,
    ) -> Infallible {
        let attempted = channel::Sender::new(!publishes);
        let publish = async {
            if publishes {
                self.keep_published(&Api::namespaced(client.clone(), namespace), &attempted).await;
            }
            pending::<Infallible>().await
        };
        let sync = async {
            let (mut changes, mut attempts) = (self.changes(), attempted.subscribe());
            loop {
                synced.set(self.is_synced() && *attempts.borrow_and_update());
                // Both senders outlive the receivers.
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = attempts.changed() => {}
                }
            }
        };
        tokio::join!(
            catalogue(self, client.clone(), namespace),
            chains(self, client.clone()),
            auditors(self, client.clone()),
            namespaces(self, client.clone()),
            generations(self, client.clone(), namespace),
            catch_up(self),
            publish,
            sync,
        )
        .0
    }

    async fn keep_published(&self, api: &Api<ConfigMap>, attempted: &channel::Sender<bool>) -> Infallible {
        let mut has_failed = false;
        loop {
            let renewed = self.renew(api).await;
            if let Some(error) = renewed.as_ref().err().filter(|_| !has_failed) {
                let error = with_causes(error);
                tracing::warn!(
                    error,
                    "failed to publish the settings; replicas with other settings refuse the chains of this one"
                );
            }
            has_failed = renewed.is_err();
            attempted.send_replace(true);
            tokio::time::sleep(generations::RENEW_INTERVAL).await;
        }
    }

    /// Renews this replica's generation and deletes obsolete ones.
    async fn renew(&self, api: &Api<ConfigMap>) -> Result<(), kube::Error> {
        let name = generations::CONFIG_MAP;
        let generation = self.generation();
        let value = generations::published(self.published()).map_err(kube::Error::SerdeError)?;
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
}

async fn catalogue(state: &State, client: Client, namespace: &str) -> Infallible {
    let mut listed = false;
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let events = watcher(api, named(keys::CATALOGUE_CONFIG_MAP)).backoff(backoff());
    each_event("ConfigMap lucid-auditors", events, |event| match event {
        Event::Init => listed = false,
        Event::InitApply(map) | Event::Apply(map) => {
            listed = true;
            state.set_catalogue(namespace, Some(&map.data.unwrap_or_default()));
        }
        Event::InitDone if listed => {}
        Event::InitDone | Event::Delete(_) => state.set_catalogue(namespace, None),
    })
    .await
}

async fn generations(state: &State, client: Client, namespace: &str) -> Infallible {
    let api = Api::<ConfigMap>::namespaced(client, namespace);
    let events = watcher(api, named(generations::CONFIG_MAP)).backoff(backoff());
    let mut listed = Data::new();
    each_event("ConfigMap lucid-generations", events, |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(map) => listed = map.data.unwrap_or_default(),
        Event::InitDone => state.set_generations(&listed),
        Event::Apply(map) => state.set_generations(&map.data.unwrap_or_default()),
        Event::Delete(_) => state.set_generations(&Data::new()),
    })
    .await
}

async fn chains(state: &State, client: Client) -> Infallible {
    // A list takes effect as a whole.
    let mut listed = BTreeMap::new();
    let events = watcher(Api::<ConfigMap>::all(client), named(keys::NAMESPACE_CONFIG_MAP)).backoff(backoff());
    each_event("ConfigMaps lucid-auditor-chain", events, |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(map) => {
            listed.insert(map.namespace().unwrap_or_default(), map.data.unwrap_or_default());
        }
        Event::InitDone => state.set_chains(std::mem::take(&mut listed)),
        Event::Apply(map) => {
            state.set_chain(&map.namespace().unwrap_or_default(), Some(map.data.unwrap_or_default()));
        }
        Event::Delete(map) => state.set_chain(&map.namespace().unwrap_or_default(), None),
    })
    .await
}

/// Keeps only the settings from labels and annotations of each namespace.
async fn namespaces(state: &State, client: Client) -> Infallible {
    let mut listed = HashMap::new();
    let events = watcher(Api::<PartialObjectMeta<Namespace>>::all(client), watcher::Config::default())
        .backoff(backoff());
    each_event("namespaces", events, |event| match event {
        Event::Init => listed.clear(),
        Event::InitApply(namespace) => {
            listed.insert(namespace.name_any(), Labels::of(namespace.labels(), namespace.annotations()));
        }
        Event::InitDone => state.set_all_labels(std::mem::take(&mut listed)),
        Event::Apply(namespace) => {
            state.set_labels(
                &namespace.name_any(),
                Some(Labels::of(namespace.labels(), namespace.annotations())),
            );
        }
        Event::Delete(namespace) => state.set_labels(&namespace.name_any(), None),
    })
    .await
}

/// Watches the Auditor objects while their CustomResourceDefinition exists. Watching an undefined resource would only
/// fail.
async fn auditors(state: &State, client: Client) -> Infallible {
    let definitions = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(client.clone());
    let events = watcher(definitions, named(auditor::CRD_NAME)).backoff(backoff());
    // Uid of the definition, if it exists; the outer `None` means unknown.
    let (defined, mut is_defined) = channel::channel(None::<Option<String>>);
    let mut listed = None;
    let definition = each_event("CustomResourceDefinition auditors.lucid.computing", events, |event| {
        let uid = match event {
            Event::Init => return listed = None,
            Event::InitApply(found) => return listed = found.uid(),
            Event::InitDone => listed.take(),
            Event::Apply(found) => found.uid(),
            Event::Delete(_) => None,
        };
        defined.send_if_modified(|known| known.replace(uid.clone()) != Some(uid));
    });
    let objects = async {
        loop {
            let now = is_defined.borrow_and_update().clone();
            let follow = async {
                match &now {
                    None => {}
                    Some(None) => state.change_auditors(|auditors| auditors.set_all(Vec::new())),
                    Some(Some(_)) => match defined_auditors(state, client.clone()).await {},
                }
                pending::<Infallible>().await
            };
            tokio::select! {
                never = follow => match never {},
                _ = is_defined.wait_for(|known| *known != now) => {}
            }
        }
    };
    tokio::join!(definition, objects).0
}

/// Follows the Auditor objects.
async fn defined_auditors(state: &State, client: Client) -> Infallible {
    let api = Api::<DynamicObject>::all_with(client, &auditor::resource());
    // The API server serves a new resource after a short delay, so the first attempt may fail.
    let events = watcher(api, watcher::Config::default()).backoff(backoff());
    let mut events = pin!(events);
    let mut listed = Vec::new();
    let mut batch = Vec::new();
    loop {
        batch.extend(events.next().await);
        let deadline = Instant::now() + COLLECTED;
        while let Ok(Some(event)) = timeout_at(deadline, events.next()).await {
            batch.push(event);
        }
        let changes: Vec<_> = batch.drain(..).filter_map(|event| taken("Auditors", event)).collect();
        if changes.is_empty() {
            continue;
        }
        state.change_auditors(|auditors| {
            for change in changes {
                match change {
                    Event::Init => listed.clear(),
                    Event::InitApply(object) => listed.push(lean(object)),
                    Event::InitDone => auditors.set_all(std::mem::take(&mut listed)),
                    Event::Apply(object) => auditors.set(lean(object)),
                    Event::Delete(object) => auditors.remove(&object.name_any()),
                }
            }
        });
    }
}

/// Drops the managed fields, the largest part of an object, which Lucid does not use.
fn lean(mut object: DynamicObject) -> DynamicObject {
    object.metadata.managed_fields = None;
    object
}

/// Parses the chains of unused namespaces, one at a time and with low priority.
async fn catch_up(state: &State) -> Infallible {
    let mut changes = state.changes();
    loop {
        changes.borrow_and_update();
        for namespace in state.with_chains() {
            state.catch_up(&namespace);
            tokio::task::yield_now().await;
        }
        // The state owns the sender, so this never fails.
        changes.changed().await.ok();
        tokio::time::sleep(CATCH_UP_PACE).await;
    }
}

/// Delays between retries. They are short, so that a replica is ready soon after an outage of the API server.
fn backoff() -> ExponentialBackoff {
    let delays = ExponentialBuilder::default().with_max_delay(Duration::from_secs(5)).with_jitter();
    delays.without_max_times().into()
}

/// Selects objects called `name`. With this selector, RBAC permission by `resourceNames` suffices.
fn named(name: &str) -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={name}"))
}

/// Passes every event to `handle`. The stream retries after errors.
async fn each_event<K: Debug>(
    what: &str,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    mut handle: impl FnMut(Event<K>),
) -> Infallible {
    let mut events = pin!(events);
    loop {
        match events.next().await {
            Some(event) => taken(what, event).into_iter().for_each(&mut handle),
            // The stream of a watcher never ends.
            None => pending().await,
        }
    }
}

/// Returns the event, or logs the error.
fn taken<K>(what: &str, event: watcher::Result<Event<K>>) -> Option<Event<K>> {
    event
        .inspect_err(|error| {
            let error = with_causes(error);
            tracing::warn!(what, error, "failed to watch; it is tried again");
        })
        .ok()
}
