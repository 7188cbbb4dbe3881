//! The task that keeps one replica served by the shared authority, without a certificate manager

use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_lc_rs::rand;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        events::{Recorder, Reporter},
        watcher::{self, Event, watcher},
    },
};
use snafu::{ResultExt, Snafu};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};
use tracing::{info, warn};

use crate::{
    bundle::TrustBundle,
    names::ServingNames,
    report::{chain, report},
    republish::{Republish, Requests},
    rotation::{Rotation, RotationError},
    secret::{CaOrigin, CaSecret, SecretError, SharedCa},
    tls::ServingCertificateResolver,
};

/// How often Secret, bundle and leaf are looked at when nothing happens. The timer may stand still
/// while the machine is suspended; what is due is then decided by the wall clock within a minute.
const INTERVAL: Duration = Duration::from_mins(1);

/// What API servers get to hear of a new bundle before a leaf that needs it is served: they are fed
/// by watches, which nothing acknowledges.
const SETTLE: Duration = Duration::from_secs(2);

/// Two who overwrite what the other published do so at most this often.
const PAUSE: Duration = Duration::from_secs(5);

/// How old an authority is when every replica that is not cut off has added its own to the Secret, with
/// room for clocks that differ
const KNOWN_TO_ALL: Duration = Duration::from_secs(10);

/// How long replicas get for that. One that runs may just be waiting for [`SETTLE`].
const HAND_ON: Duration = SETTLE.saturating_add(Duration::from_secs(1));

/// Any error of a [`PublishTrust`]
pub type PublishError = Box<dyn std::error::Error + Send + Sync>;

/// Brings a trust bundle to those who call the server, such as into the `caBundle` fields of webhook
/// configurations.
///
/// It is called once a minute, on every change of the Secret and when it is [asked for](Republish), so it must be idempotent, and cheap when nothing
/// changed: server-side apply of just the `caBundle` fields is both, and heals a field that somebody
/// wiped. It succeeds only when every target has the bundle. It may be dropped before it completes, at
/// the shutdown; what is missing is written by the next replica that publishes.
pub trait PublishTrust: Send + Sync {
    /// Writes `bundle` to every target.
    fn publish(&self, bundle: &TrustBundle) -> impl Future<Output = Result<(), PublishError>> + Send;
}

/// Why serving could not begin
#[derive(Debug, Snafu)]
#[non_exhaustive]
pub enum StartError {
    /// There is no authority
    #[snafu(display("failed to get the certificate authority"))]
    Authority {
        /// What went wrong
        source: SecretError,
    },
    /// The trust bundle did not reach its targets
    #[snafu(display("failed to publish the trust bundle"))]
    Publish {
        /// What the publisher says
        source: PublishError,
    },
    /// There is no serving certificate
    #[snafu(display("failed to get a serving certificate"))]
    Leaf {
        /// What went wrong
        source: RotationError,
    },
}

/// What a [`SelfManaged`] is started with
#[non_exhaustive]
pub struct SelfManagedConfig {
    /// Speaks to the API server
    pub client: Client,
    /// Namespace of the Secret
    pub namespace: String,
    /// Name of the Secret, see [`CaSecret`]
    pub secret: String,
    /// What the serving certificate is for; the same on all replicas
    pub names: ServingNames,
    /// Who reports events
    pub reporter: Reporter,
}

impl SelfManagedConfig {
    /// Everything that is needed
    #[must_use]
    pub fn new(
        client: Client,
        namespace: impl Into<String>,
        secret: impl Into<String>,
        names: ServingNames,
        reporter: Reporter,
    ) -> Self {
        Self { client, namespace: namespace.into(), secret: secret.into(), names, reporter }
    }
}

impl fmt::Debug for SelfManagedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client: _, namespace, secret, names, reporter } = self;
        f.debug_struct("SelfManagedConfig")
            .field("namespace", namespace)
            .field("secret", secret)
            .field("names", names)
            .field("reporter", reporter)
            .finish_non_exhaustive()
    }
}

/// Serving certificates from an authority of our own that all replicas share in a Secret.
///
/// The leaf and its key are in memory, one for each replica; they are renewed after two thirds of
/// their life. A changed authority takes effect in the order that the [crate] explains, whoever
/// changed it; deleting the Secret asks for a new one.
///
/// Needs the verbs `get`, `watch`, `list` and `update` on the Secret, `create` on Secrets of its
/// namespace, and `create` and `patch` on `events` of `events.k8s.io` there.
pub struct SelfManaged<P> {
    secret: CaSecret,
    watched: Api<PartialObjectMeta<Secret>>,
    name: String,
    recorder: Recorder,
    publisher: P,
    rotation: Rotation,
    resolver: Arc<ServingCertificateResolver>,
    requests: Requests,
    ready: watch::Sender<bool>,
}

impl<P: PublishTrust> SelfManaged<P> {
    /// Loads or creates the authority, publishes its bundle, and gets a leaf that this bundle
    /// accepts. When it returns, the [resolver](Self::resolver) can serve.
    ///
    /// Where the authority is only seconds old, as at the very first start, this takes three seconds: other
    /// replicas get the time to say what they serve under.
    ///
    /// # Errors
    ///
    /// When one of these fails: there is nothing to fall back to yet.
    pub async fn start(config: SelfManagedConfig, publisher: P) -> Result<Self, StartError> {
        let SelfManagedConfig { client, namespace, secret: name, names, reporter } = config;
        let watched = Api::namespaced(client.clone(), &namespace);
        let secret = CaSecret::new(client.clone(), &namespace, &name);
        let recorder = Recorder::new(client, reporter);

        let mut now = SystemTime::now();
        let mut shared = secret.load_or_create(&names, None, now).await.context(AuthoritySnafu)?;
        report(&recorder, &shared.ca.fingerprint().to_string(), &shared.origin).await;
        if shared.ca.validity().age(now) < KNOWN_TO_ALL {
            sleep(HAND_ON).await;
            now = SystemTime::now();
            shared = secret.load_or_create(&names, None, now).await.context(AuthoritySnafu)?;
            report(&recorder, &shared.ca.fingerprint().to_string(), &shared.origin).await;
        }
        let SharedCa { ca, previous, .. } = shared;
        let bundle = previous.iter().fold(ca.trust_bundle(), |bundle, previous| bundle.merge(previous));
        publisher.publish(&bundle).await.context(PublishSnafu)?;
        let rotation = Rotation::new(names, ca, previous, bundle, now, spread()).context(LeafSnafu)?;

        let resolver = Arc::new(ServingCertificateResolver::new(rotation.leaf()));
        info!(
            leaf = %rotation.leaf().fingerprint(),
            validity = %rotation.leaf().validity(),
            "serving certificate issued"
        );
        let (requests, ready) = (Requests::with_pause(PAUSE), watch::Sender::new(true));
        Ok(Self { secret, watched, name, recorder, publisher, rotation, resolver, requests, ready })
    }

    /// What to serve with, see [`server_config`](crate::server_config)
    #[must_use]
    pub fn resolver(&self) -> Arc<ServingCertificateResolver> {
        Arc::clone(&self.resolver)
    }

    /// For who knows when the targets of the [`PublishTrust`] change, such as by a watch on them
    #[must_use]
    pub fn republisher(&self) -> Republish {
        self.requests.handle()
    }

    /// Whether clients accept what is served: the leaf is valid, and verifies against the bundle that was
    /// published last.
    ///
    /// It is for the readiness probe, and so it says whether calls should come here. That publishing or
    /// reading the Secret fails is no reason to send them elsewhere: callers have the bundle of before,
    /// the leaf is under it, and no other replica is better off. Only when this lasts until the leaf
    /// expires, days later, does it turn false. Failures are in the log.
    #[must_use]
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Keeps everything in force until `shutdown` completes. Errors are logged and tried again after
    /// a minute; what was served stays served meanwhile. While the Secret cannot be read nothing is
    /// published: the other replicas may have another authority by now, which a bundle from memory lacks.
    ///
    /// Pass the signal by which the process is asked to end, and not the end of its serving: an
    /// uninstallation deletes Secret and registration while processes terminate, and nobody must
    /// make them again. When `shutdown` completes, no further write begins, also amid the steps of a
    /// change. Each step is safe to be the last: what is in the Secret others adopt, what is published
    /// holds the authority of every leaf, and no leaf is swapped before its bundle is published.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        tokio::select! {
            // In this order, or a write might begin when both are ready.
            biased;
            () = shutdown => {}
            () = self.reconcile_forever() => {}
        }
    }

    async fn reconcile_forever(&mut self) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.name));
        let mut changes = pin!(watcher(self.watched.clone(), config).default_backoff());
        let mut ticks = interval_at(Instant::now() + INTERVAL, INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Two who replace each other's authority for ever do so once a minute, not at full speed. What is
        // not listened to waits.
        let mut listening = true;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                Some(change) = changes.next(), if listening => match change {
                    Ok(Event::Init | Event::InitApply(_)) => continue,
                    Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone) => {}
                    Err(error) => {
                        warn!(error = chain(&error), "watch of the certificate authority's Secret failed");
                        continue;
                    }
                },
                () = self.requests.next(), if listening => {}
            }
            listening = !self.reconcile().await;
        }
    }

    /// Each step goes on from what is there when the one before failed. Returns whether it replaced
    /// the authority.
    async fn reconcile(&mut self) -> bool {
        let now = SystemTime::now();
        let mut replaced = false;
        let known = self.rotation.bundle(now);
        match self.secret.load_or_create(self.rotation.names(), Some(&known), now).await {
            Ok(SharedCa { ca, previous, origin }) => {
                report(&self.recorder, &ca.fingerprint().to_string(), &origin).await;
                replaced = matches!(origin, CaOrigin::Replaced { .. });
                self.rotation.adopt(ca, previous);
                self.publish(now).await;
            }
            Err(error) => {
                warn!(error = chain(&error), "certificate authority not checked, trust bundle not published");
            }
        }

        match self.rotation.next_leaf(now) {
            Ok(None) => {}
            Ok(Some(leaf)) => {
                if self.rotation.is_trusted(now) {
                    sleep(SETTLE).await;
                }
                self.resolver.swap(&leaf);
                info!(leaf = %leaf.fingerprint(), validity = %leaf.validity(), "serving certificate swapped");
                self.rotation.install(leaf, now, spread());
            }
            Err(error) => warn!(error = chain(&error), "serving certificate not renewed"),
        }

        let ready = self.rotation.is_trusted(now);
        self.ready.send_if_modified(|before| std::mem::replace(before, ready) != ready);
        replaced
    }

    async fn publish(&mut self, now: SystemTime) {
        let bundle = self.rotation.bundle(now);
        match self.publisher.publish(&bundle).await {
            Ok(()) => self.rotation.record_published(bundle),
            Err(error) => warn!(error = chain(error.as_ref()), "trust bundle not published"),
        }
    }
}

impl<P> fmt::Debug for SelfManaged<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelfManaged")
            .field("secret", &self.secret)
            .field("rotation", &self.rotation)
            .finish_non_exhaustive()
    }
}

/// A random number from 0 to 1; without randomness replicas renew together, and nothing worse
fn spread() -> f64 {
    let mut bytes = [0; 4];
    rand::fill(&mut bytes).map_or(0.0, |()| f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX))
}
