//! Replicas of a webhook server, and callers that trust the registered bundle.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Secret},
};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::{WatchStreamExt, events::Reporter, watcher},
};
use lucid_certs::{
    Certificates, Fingerprint, SelfManaged, ServerTls, ServingNames, Timing, TrustBundle,
    target::{ObjectTarget, Target},
};
use lucid_e2e::eventually;
use rustls::{ServerConfig, version::TLS13};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

use crate::common::{
    handshake::{client as trusting, connect},
    names,
    objects::Kind,
};

pub(crate) const NAMESPACE: &str = "default";
const SERVER_NAME: &str = "lucid-operator.lucid-system.svc";

/// Durations in seconds instead of days.
pub(crate) fn timing() -> Timing {
    let second = Duration::from_secs(1);
    Timing::default().with_leaf_lifetime(60 * second).with_settle(5 * second).with_check_interval(second)
}

pub(crate) fn source(client: &Client, name: &str) -> SelfManaged {
    source_of(&Certificates::new(names()).with_timing(timing()), client, name)
}

fn source_of(certificates: &Certificates, client: &Client, name: &str) -> SelfManaged {
    let reporter = Reporter { controller: "lucid-operator".to_owned(), instance: Some("test".to_owned()) };
    certificates.self_managed(client.clone(), NAMESPACE, name).unwrap().with_reporter(reporter)
}

pub(crate) fn target(client: &Client, name: &str) -> ObjectTarget {
    ObjectTarget::mutating_webhooks(client.clone(), "lucid-certs-test", name)
}

/// Registers a webhook without a caBundle, as Helm does.
pub(crate) async fn register(client: &Client, name: &str) {
    let configuration = serde_json::from_value(Kind::Mutating.manifest(name)).unwrap();
    configurations(client).create(&PostParams::default(), &configuration).await.unwrap();
}

pub(crate) fn configurations(client: &Client) -> Api<MutatingWebhookConfiguration> {
    Api::all(client.clone())
}

pub(crate) async fn published(client: &Client, name: &str) -> Option<TrustBundle> {
    bundle_of(&configurations(client).get(name).await.unwrap())
}

fn bundle_of(configuration: &MutatingWebhookConfiguration) -> Option<TrustBundle> {
    let ByteString(pem) = configuration.webhooks.as_ref()?.first()?.client_config.ca_bundle.as_ref()?;
    TrustBundle::from_pem(pem).ok()
}

pub(crate) fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), NAMESPACE)
}

pub(crate) async fn signer(client: &Client, name: &str) -> Option<TrustBundle> {
    let secret = secrets(client).get_opt(name).await.unwrap()?;
    TrustBundle::from_pem(&secret.data?.get("tls.crt")?.0).ok()
}

pub(crate) struct Replica {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) ready: watch::Receiver<bool>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Replica {
    /// Starts a replica without waiting for its readiness.
    pub(crate) fn begin(client: &Client, name: &str) -> Self {
        Self::begin_with(source(client, name), target(client, name))
    }

    pub(crate) fn begin_with(source: SelfManaged, target: impl Into<Target>) -> Self {
        Self::new(Certificates::new(names()), source, target)
    }

    pub(crate) fn begin_for(names: ServingNames, client: &Client, name: &str) -> Self {
        let certificates = Certificates::new(names).with_timing(timing());
        let source = source_of(&certificates, client, name);
        Self::new(certificates, source, target(client, name))
    }

    fn new(certificates: Certificates, source: SelfManaged, target: impl Into<Target>) -> Self {
        let certificates = certificates.with_targets([target]).with_timing(timing());
        let server = Arc::new(ServerTls::new(certificates.resolver()).build().unwrap());
        let ready = certificates.ready();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(certificates.run(source, async { drop(stopped.await) }));
        Self { server, ready, stop, task }
    }

    pub(crate) async fn start(client: &Client, name: &str) -> Self {
        let mut replica = Self::begin(client, name);
        replica.readiness().await;
        replica
    }

    pub(crate) async fn readiness(&mut self) {
        let ready = tokio::time::timeout(Duration::from_mins(2), self.ready.wait_for(|ready| *ready)).await;
        drop(ready.expect("not ready within 2 min").unwrap());
    }

    pub(crate) fn accepts(&self, bundle: &TrustBundle) -> bool {
        connect(&trusting(bundle, &TLS13), &self.server, SERVER_NAME).is_ok()
    }

    pub(crate) fn shown(&self, bundle: &TrustBundle) -> Fingerprint {
        let (client, _) = connect(&trusting(bundle, &TLS13), &self.server, SERVER_NAME).unwrap();
        Fingerprint::of(&client.peer_certificates().unwrap()[0])
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }

    pub(crate) async fn wait_for(&self, bundle: &TrustBundle) {
        eventually("service under another signer", async || self.accepts(bundle)).await;
    }
}

pub(crate) async fn another_signer(client: &Client, name: &str, old: &TrustBundle) -> TrustBundle {
    eventually("another signer", async || signer(client, name).await.filter(|signer| signer != old)).await
}

/// Two replicas whose certificates are verified continuously.
pub(crate) struct CalledReplicas {
    pub(crate) replicas: [Replica; 2],
    pub(crate) old: TrustBundle,
    caller: Caller,
}

impl CalledReplicas {
    pub(crate) async fn start(client: &Client, name: &str) -> Self {
        register(client, name).await;
        let replicas = [Replica::start(client, name).await, Replica::start(client, name).await];
        let old = signer(client, name).await.unwrap();
        let caller = Caller::start(client, name, &replicas.each_ref()).await;
        Self { replicas, old, caller }
    }

    /// Waits until both replicas serve under another CA than at the start, which it returns.
    pub(crate) async fn rotated(&self, client: &Client, name: &str) -> TrustBundle {
        let new = another_signer(client, name, &self.old).await;
        for replica in &self.replicas {
            replica.wait_for(&new).await;
        }
        new
    }

    /// Stops the replicas. Panics if a call has failed.
    pub(crate) async fn stop(self) {
        self.caller.stop().await;
        for replica in self.replicas {
            replica.stop().await;
        }
    }
}

/// Part of an API server: watches the bundle and calls ready replicas continuously, with a new connection per
/// call.
pub(crate) struct Caller {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    calls: Arc<AtomicUsize>,
    failed: Arc<Mutex<Vec<String>>>,
}

impl Caller {
    pub(crate) async fn start(client: &Client, name: &str, replicas: &[&Replica]) -> Self {
        let (calls, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let servers: Vec<_> =
            replicas.iter().map(|replica| (Arc::clone(&replica.server), replica.ready.clone())).collect();
        let (stop, mut stopped) = oneshot::channel();
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut bundles = watcher(configurations(client), config).default_backoff().applied_objects().boxed();
        let mut bundle = bundles.next().await.unwrap().ok().as_ref().and_then(bundle_of);
        let task = tokio::spawn({
            let (calls, failed) = (Arc::clone(&calls), Arc::clone(&failed));
            async move {
                loop {
                    tokio::select! {
                        biased;
                        _ = &mut stopped => return,
                        Some(Ok(configuration)) = bundles.next() => bundle = bundle_of(&configuration),
                        () = tokio::time::sleep(Duration::from_millis(2)) => {
                            for (index, (server, ready)) in servers.iter().enumerate() {
                                if !*ready.borrow() {
                                    continue;
                                }
                                calls.fetch_add(1, Ordering::Relaxed);
                                let outcome = match &bundle {
                                    Some(bundle) => connect(&trusting(bundle, &TLS13), server, SERVER_NAME)
                                        .map(drop)
                                        .map_err(|error| error.to_string()),
                                    None => Err("there is no bundle".to_owned()),
                                };
                                if let Err(error) = outcome {
                                    failed.lock().unwrap().push(format!("replica {index}: {error}"));
                                }
                            }
                        }
                    }
                }
            }
        });
        Self { stop, task, calls, failed }
    }

    /// Stops the caller. Panics if a call has failed.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
        let calls = self.calls.load(Ordering::Relaxed);
        let failed = self.failed.lock().unwrap();
        assert!(calls > 20, "only {calls} calls");
        assert!(failed.is_empty(), "{} of {calls} calls failed, first {:?}", failed.len(), failed.first());
    }
}
