//! Replicas that serve under the shared authority of a real API server

#![cfg(feature = "kube")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod common;

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use common::{
    handshake::{client as trusting, connect},
    names,
};
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::events::Reporter,
};
use lucid_certs::{
    PublishError, PublishTrust, SelfManaged, SelfManagedConfig, StartError, TrustBundle, server_config,
};
use lucid_testbed::Cluster;
use rustls::{ServerConfig, version::TLS13};
use tokio::{sync::oneshot, task::JoinHandle};

const NAMESPACE: &str = "default";
const NAME: &str = "lucid-operator.lucid-system.svc";

/// Keeps what was published, in place of webhook configurations
#[derive(Clone, Default)]
struct Published(Arc<Mutex<Vec<(Instant, TrustBundle)>>>);

impl Published {
    fn last(&self) -> TrustBundle {
        self.0.lock().unwrap().last().unwrap().1.clone()
    }

    /// Since when `bundle` is what clients have
    fn since(&self, bundle: &TrustBundle) -> Instant {
        self.0.lock().unwrap().iter().find(|(_, published)| published == bundle).unwrap().0
    }
}

impl PublishTrust for Published {
    async fn publish(&self, bundle: &TrustBundle) -> Result<(), PublishError> {
        self.0.lock().unwrap().push((Instant::now(), bundle.clone()));
        Ok(())
    }
}

struct Unreachable;

impl PublishTrust for Unreachable {
    async fn publish(&self, _bundle: &TrustBundle) -> Result<(), PublishError> {
        Err("webhook configuration not found".into())
    }
}

struct Replica {
    published: Published,
    server: Arc<ServerConfig>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Replica {
    async fn start(client: &Client, secret: &str) -> Self {
        let published = Published::default();
        let managed = SelfManaged::start(config(client, secret), published.clone()).await.unwrap();
        assert!(*managed.ready().borrow());
        let server = Arc::new(server_config(managed.resolver()).unwrap());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(managed.run(async { drop(stopped.await) }));
        Self { published, server, stop, task }
    }

    /// Whether a client that trusts `bundle` gets through
    fn accepts(&self, bundle: &TrustBundle) -> bool {
        connect(&trusting(bundle, &TLS13), &self.server, NAME).is_ok()
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

fn config(client: &Client, secret: &str) -> SelfManagedConfig {
    let reporter = Reporter { controller: "lucid-operator".to_owned(), instance: Some("test".to_owned()) };
    SelfManagedConfig::new(client.clone(), NAMESPACE, secret, names(), reporter)
}

async fn stored(client: &Client, secret: &str) -> Option<TrustBundle> {
    let secret = Api::<Secret>::namespaced(client.clone(), NAMESPACE).get_opt(secret).await.unwrap()?;
    TrustBundle::from_pem(&secret.data?.get("tls.crt")?.0).ok()
}

async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut attempt: impl FnMut() -> F) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{what} did not happen within 20 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_served_by_one_authority() {
    let cluster = Cluster::builder().start().await.unwrap();
    let client = cluster.client();
    a_second_replica_and_a_restart_serve_under_the_same_authority(&client).await;
    a_deleted_secret_is_healed_and_no_handshake_fails(&client).await;
    a_broken_secret_is_replaced_with_an_event(&client).await;
    a_bundle_that_cannot_be_published_stops_the_start(&client).await;
}

async fn a_second_replica_and_a_restart_serve_under_the_same_authority(client: &Client) {
    let first = Replica::start(client, "shared").await;
    let second = Replica::start(client, "shared").await;
    let bundle = first.published.last();
    assert_eq!(second.published.last(), bundle);
    assert_eq!(stored(client, "shared").await, Some(bundle.clone()));
    assert!(first.accepts(&bundle) && second.accepts(&bundle));
    first.stop().await;
    second.stop().await;

    let restarted = Replica::start(client, "shared").await;
    assert_eq!(restarted.published.last(), bundle);
    assert!(restarted.accepts(&bundle));
    restarted.stop().await;
}

async fn a_deleted_secret_is_healed_and_no_handshake_fails(client: &Client) {
    let replicas = [Replica::start(client, "deleted").await, Replica::start(client, "deleted").await];
    let old = replicas[0].published.last();
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    api.delete("deleted", &DeleteParams::default()).await.unwrap();

    let new = eventually("a new Secret", || async { stored(client, "deleted").await }).await;
    assert_ne!(new, old);
    // Both replicas write the same targets, so clients have what either of them wrote last.
    eventually("the new authority on both replicas", || async {
        for bundle in replicas.each_ref().map(|replica| replica.published.last()) {
            assert!(replicas.iter().all(|replica| replica.accepts(&bundle)), "{bundle:?}");
        }
        replicas.iter().all(|replica| replica.accepts(&new)).then_some(())
    })
    .await;
    for replica in replicas {
        assert_eq!(replica.published.last(), new.merge(&old));
        let since = replica.published.since(&new.merge(&old));
        assert!(since.elapsed() > Duration::from_secs(1), "no API server had time to hear of the bundle");
        replica.stop().await;
    }
}

async fn a_broken_secret_is_replaced_with_an_event(client: &Client) {
    let replica = Replica::start(client, "broken").await;
    let old = replica.published.last();
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let broken = serde_json::json!({ "data": { "tls.key": "Y3V0IG9mZg==" } });
    api.patch("broken", &PatchParams::default(), &Patch::Merge(broken)).await.unwrap();

    let new = eventually("another authority", || async {
        stored(client, "broken").await.filter(|stored| *stored != old)
    })
    .await;
    eventually("service under it", || async { replica.accepts(&new).then_some(()) }).await;
    assert_eq!(replica.published.last(), new.merge(&old));

    let event = eventually("an event", || async {
        let events = Api::<Event>::namespaced(client.clone(), NAMESPACE);
        let found = events.list(&ListParams::default()).await.unwrap();
        found.items.into_iter().find(|event| event.reason.as_deref() == Some("CertificateAuthorityReplaced"))
    })
    .await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.reporting_controller.as_deref(), Some("lucid-operator"));
    let regarding = event.regarding.unwrap();
    assert_eq!((regarding.kind.as_deref(), regarding.name.as_deref()), (Some("Secret"), Some("broken")));
    let note = event.note.unwrap();
    assert!(note.starts_with("tls.key holds no usable certificate authority: failed to read"), "{note}");
    assert!(note.contains(&new.fingerprints().next().unwrap()), "{note}");
    replica.stop().await;
}

async fn a_bundle_that_cannot_be_published_stops_the_start(client: &Client) {
    let error = SelfManaged::start(config(client, "unpublished"), Unreachable).await.unwrap_err();
    assert!(matches!(error, StartError::Publish { .. }), "{error:?}");
    assert!(common::chain(&error).contains("webhook configuration not found"), "{error:?}");
}
