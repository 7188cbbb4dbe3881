//! Replicas that serve under the shared authority of a real API server

use std::{
    future::Future,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant, SystemTime},
};

use crate::common::{
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
    CaSecret, CertificateAuthority, PublishError, PublishTrust, Republish, SelfManaged, SelfManagedConfig,
    StartError, TrustBundle, server_config,
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

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
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
    republish: Republish,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Replica {
    async fn start(client: &Client, secret: &str) -> Self {
        Self::start_with(client, secret, Published::default()).await
    }

    /// A replica whose targets are those of others too
    async fn start_with(client: &Client, secret: &str, published: Published) -> Self {
        let managed = SelfManaged::start(config(client, secret), published.clone()).await.unwrap();
        assert!(*managed.ready().borrow());
        let server = Arc::new(server_config(managed.resolver()).unwrap());
        let republish = managed.republisher();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(managed.run(async { drop(stopped.await) }));
        Self { published, server, republish, stop, task }
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
    tokio::join!(
        a_second_replica_and_a_restart_serve_under_the_same_authority(&client),
        a_deleted_secret_is_healed_and_no_handshake_fails(&client),
        replicas_that_start_amid_a_change_keep_the_others_trusted(&client),
        an_authority_made_without_knowledge_of_the_one_in_service_loses_no_handshake(&client),
        a_broken_secret_is_replaced_with_an_event(&client),
        a_request_is_answered_at_once_and_then_every_5_s_at_most(&client),
        nothing_is_published_while_the_secret_cannot_be_read(&client),
        nothing_is_written_after_the_shutdown(&client),
        a_bundle_that_cannot_be_published_stops_the_start(&client),
    );
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

/// Connects to a replica again and again, and each time trusts what was published last.
struct Watchdog {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<usize>,
}

impl Watchdog {
    fn start(replica: &Replica) -> Self {
        let (published, server) = (replica.published.clone(), Arc::clone(&replica.server));
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut handshakes = 0;
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let bundle = published.last();
                let outcome = connect(&trusting(&bundle, &TLS13), &server, NAME);
                assert!(outcome.is_ok(), "{:?} after {handshakes} handshakes", outcome.err());
                handshakes += 1;
                thread::sleep(Duration::from_millis(1));
            }
            handshakes
        });
        Self { stop, thread }
    }

    fn stop(self) {
        drop(self.stop);
        assert!(self.thread.join().unwrap() > 100);
    }
}

async fn replicas_that_start_amid_a_change_keep_the_others_trusted(client: &Client) {
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    for (name, pause) in [("amid-0", 0), ("amid-300", 300), ("amid-1500", 1_500)] {
        let published = Published::default();
        let first = Replica::start_with(client, name, published.clone()).await;
        let old = published.last();
        let watchdog = Watchdog::start(&first);
        api.delete(name, &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let second = Replica::start_with(client, name, published.clone()).await;
        let new = stored(client, name).await.unwrap();
        for replica in [&first, &second] {
            eventually("the new authority", || async { replica.accepts(&new).then_some(()) }).await;
        }
        assert_eq!(published.last(), new.merge(&old), "{name}");
        watchdog.stop();
        first.stop().await;
        second.stop().await;
    }
}

/// As when one that starts is faster than all that run: it makes an authority and cannot tell what the
/// others serve under.
async fn an_authority_made_without_knowledge_of_the_one_in_service_loses_no_handshake(client: &Client) {
    let published = Published::default();
    let first = Replica::start_with(client, "unknowing", published.clone()).await;
    let old = published.last();
    let watchdog = Watchdog::start(&first);
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    api.delete("unknowing", &DeleteParams::default()).await.unwrap();
    eventually("a change", || async { (published.last() != old).then_some(()) }).await;
    let between = stored(client, "unknowing").await.unwrap();

    // Now the first is waiting for API servers to hear, and not for changes of the Secret.
    let ca = CertificateAuthority::generate(&names(), SystemTime::now()).unwrap();
    let (certificate, key) = (ca.certificate_pem(), ca.private_key_pem());
    let secret = serde_json::json!({
        "stringData": { "tls.crt": certificate, "tls.key": *key, "ca.crt": certificate },
    });
    api.patch("unknowing", &PatchParams::default(), &Patch::Merge(secret)).await.unwrap();
    let second = Replica::start_with(client, "unknowing", published.clone()).await;
    let new = ca.trust_bundle();
    eventually("the new authority", || async { first.accepts(&new).then_some(()) }).await;
    assert!(second.accepts(&new));
    let previous = between.merge(&old);
    assert_eq!(published.last(), new.merge(&previous));
    watchdog.stop();

    // Who has no replica to ask finds it in the Secret.
    let secret = CaSecret::new(client.clone(), NAMESPACE, "unknowing");
    let shared = secret.load_or_create(&names(), None, SystemTime::now()).await.unwrap();
    assert_eq!(shared.previous, Some(previous));
    first.stop().await;
    second.stop().await;
}

async fn a_request_is_answered_at_once_and_then_every_5_s_at_most(client: &Client) {
    const PAUSE: Duration = Duration::from_secs(5);
    let replica = Replica::start(client, "overwritten").await;
    eventually("a first look", || async { (replica.published.count() >= 2).then_some(()) }).await;

    // The other owner answers each publication.
    let mut begin = Instant::now();
    let mut count = replica.published.count();
    for wait in [Duration::ZERO, PAUSE, PAUSE] {
        replica.republish.request();
        replica.republish.request();
        eventually("an answer", || async { (replica.published.count() > count).then_some(()) }).await;
        let waited = begin.elapsed();
        assert!(
            waited + Duration::from_millis(500) > wait && waited < wait + PAUSE / 2,
            "{wait:?}: {waited:?}"
        );
        count += 1;
        assert_eq!(replica.published.count(), count);
        begin = Instant::now();
    }
    replica.stop().await;
}

async fn nothing_is_published_while_the_secret_cannot_be_read(client: &Client) {
    let replica = Replica::start(client, "unreadable").await;
    eventually("a first look", || async { (replica.published.count() >= 2).then_some(()) }).await;
    let old = replica.published.last();
    // It is neither to be used nor to be replaced, so there is no authority that all agree on.
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let frozen = serde_json::json!({ "immutable": true, "data": { "tls.key": "Y3V0IG9mZg==" } });
    api.patch("unreadable", &PatchParams::default(), &Patch::Merge(frozen)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let count = replica.published.count();
    replica.republish.request();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(replica.published.count(), count);
    assert!(replica.accepts(&old), "what was served stays served");

    api.delete("unreadable", &DeleteParams::default()).await.unwrap();
    eventually("a new authority", || async { (replica.published.last() != old).then_some(()) }).await;
    replica.stop().await;
}

/// Hangs from its second publication on
#[derive(Clone, Default)]
struct Hanging {
    published: Published,
    /// One for each publication in progress
    in_progress: Arc<()>,
}

impl PublishTrust for Hanging {
    async fn publish(&self, bundle: &TrustBundle) -> Result<(), PublishError> {
        let _in_progress = Arc::clone(&self.in_progress);
        self.published.publish(bundle).await?;
        match self.published.count() {
            1 => Ok(()),
            _ => std::future::pending().await,
        }
    }
}

async fn nothing_is_written_after_the_shutdown(client: &Client) {
    let publisher = Hanging::default();
    let managed = SelfManaged::start(config(client, "uninstalled"), publisher.clone()).await.unwrap();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(managed.run(async { drop(stopped.await) }));
    let other = Replica::start(client, "uninstalled").await;
    eventually("a publication", || async { (publisher.published.count() == 2).then_some(()) }).await;
    stop.send(()).unwrap();
    tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
    assert_eq!(Arc::strong_count(&publisher.in_progress), 1, "the publication goes on");
    other.stop().await;

    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    api.delete("uninstalled", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(stored(client, "uninstalled").await, None);
    assert_eq!(publisher.published.count(), 2);
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
    assert!(note.contains(&new.fingerprints().next().unwrap().to_string()), "{note}");
    replica.stop().await;
}

async fn a_bundle_that_cannot_be_published_stops_the_start(client: &Client) {
    let error = SelfManaged::start(config(client, "unpublished"), Unreachable).await.unwrap_err();
    assert!(matches!(error, StartError::Publish { .. }), "{error:?}");
    assert!(crate::common::chain(&error).contains("webhook configuration not found"), "{error:?}");
}
