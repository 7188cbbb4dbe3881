//! The driver that serves a source's certificates and publishes their trust bundles.

mod clock;
pub(crate) mod history;
mod run;
pub(crate) mod swap;
mod target;

use std::{
    fmt,
    future::{self, Future},
    sync::Arc,
};

use prometheus_client::registry::Registry;
use tokio::sync::watch;

use self::run::Run;
#[cfg(feature = "kube")]
use crate::{error::Error, self_managed::SelfManaged};
use crate::{
    metrics::Metrics, names::ServingNames, serving::ServingCertificate, source::CertificateSource,
    target::Target, timing::Timing, tls::ServingCertificateResolver,
};

/// Keeps a server supplied with a certificate that its callers accept.
///
/// The driver gets a certificate and a trust bundle from a [`CertificateSource`], writes the bundle to the
/// [targets](Self::with_targets), reads it back, and only then swaps the certificate that the
/// [resolver](Self::resolver) serves. See the [crate documentation](crate#rotation-order) for the reasons for
/// this order.
///
/// ```no_run
/// # #[cfg(feature = "files")]
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use lucid_certs::{Certificates, ServerTls, ServingNames, source::FileSource};
/// use tokio::signal::unix::{SignalKind, signal};
///
/// let names = ServingNames::for_services("my-system", &["my-webhook"])?;
/// let certificates = Certificates::new(names);
/// let tls = ServerTls::new(certificates.resolver()).build()?; // for tokio-rustls, or anything on rustls
/// let ready = certificates.ready(); // for the readiness probe
/// let source = FileSource::new("/tls/tls.crt", "/tls/tls.key");
/// let mut terminate = signal(SignalKind::terminate())?; // stops all writes
/// tokio::spawn(certificates.run(source, async move { drop(terminate.recv().await) }));
/// # drop((tls, ready));
/// # Ok(())
/// # }
/// ```
pub struct Certificates {
    names: ServingNames,
    alternative_names: Option<ServingNames>,
    /// Names for which the certificate in service is valid, or the first one offered.
    certified_names: watch::Sender<Option<ServingNames>>,
    targets: Vec<Target>,
    resolver: Arc<ServingCertificateResolver>,
    has_certificate: watch::Sender<bool>,
    ready: watch::Sender<bool>,
    timing: Timing,
    metrics: Metrics,
}

impl Certificates {
    /// Creates a driver for a server that is called by `names`.
    ///
    /// A certificate is rejected unless it is valid for `<service>.<namespace>.svc` of each Service and for each
    /// added host. For externally issued certificates, list only the hosts that callers use.
    #[must_use]
    pub fn new(names: ServingNames) -> Self {
        Self {
            names,
            alternative_names: None,
            certified_names: watch::Sender::new(None),
            targets: Vec::new(),
            resolver: Arc::new(ServingCertificateResolver::default()),
            has_certificate: watch::Sender::new(false),
            ready: watch::Sender::new(false),
            timing: Timing::default(),
            metrics: Metrics::default(),
        }
    }

    /// Also accepts certificates that are only valid for these names. The caller has to register the server under
    /// the [certified names](Self::certified_names).
    #[must_use]
    pub fn with_alternative_names(self, names: ServingNames) -> Self {
        Self { alternative_names: Some(names), ..self }
    }

    /// Returns a receiver of the names by which the server can be called: those passed to [`new`](Self::new) or to
    /// [`with_alternative_names`](Self::with_alternative_names), or `None` before the first certificate.
    #[must_use]
    pub fn certified_names(&self) -> watch::Receiver<Option<ServingNames>> {
        self.certified_names.subscribe()
    }

    fn names_of(&self, certificate: &ServingCertificate) -> &ServingNames {
        let is_valid_for = |names: &&ServingNames| certificate.missing_names(names).is_empty();
        let alternative = self.alternative_names.as_ref().filter(is_valid_for);
        alternative.filter(|_| !is_valid_for(&&self.names)).unwrap_or(&self.names)
    }

    /// Announces the names of `certificate`. Returns `true` if they changed.
    fn announce(&self, certificate: &ServingCertificate) -> bool {
        let names = self.names_of(certificate);
        self.certified_names.send_if_modified(|known| {
            let differs = known.as_ref() != Some(names);
            if differs {
                *known = Some(names.clone());
            }
            differs
        })
    }

    /// Adds targets, the objects from which callers read the trust bundle. Without targets the bundle is
    /// managed externally and is not checked.
    #[must_use]
    pub fn with_targets(mut self, targets: impl IntoIterator<Item = impl Into<Target>>) -> Self {
        self.targets.extend(targets.into_iter().map(Into::into));
        self
    }

    /// Sets the durations of rotations. Certificates of other issuers only use the [settle time](Timing::with_settle).
    #[must_use]
    pub fn with_timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    /// Creates the source for [`run`](Self::run) whose CA is in the Secret `secret` of `namespace`, with the names and
    /// durations of these certificates. All replicas must use the same ones. Reads nothing yet.
    ///
    /// # Errors
    ///
    /// Returns an error if two durations are inconsistent; it names both.
    #[cfg(feature = "kube")]
    pub fn self_managed(
        &self,
        client: kube::Client,
        namespace: &str,
        secret: &str,
    ) -> Result<SelfManaged, Error> {
        self.timing.check(|_| None)?;
        Ok(SelfManaged::new(client, namespace, secret, self.names.clone(), self.timing))
    }

    /// Adds metrics of the certificates to `registry`.
    ///
    /// | metric | labels | value |
    /// |---|---|---|
    /// | `certificate_expiry_timestamp_seconds` | certificate, source | expiry in Unix seconds; absent without a certificate |
    /// | `certificate_rotation_phase` | phase | 1 for the current rotation phase, 0 for the others |
    /// | `certificate_reloads_total` | source, result, reason | requests to a source, by result |
    /// | `certificate_last_success_timestamp_seconds` | source | time of the last round with a valid offer and readable targets, in Unix seconds; initially 0 |
    /// | `certificate_ready` | | 1 while callers accept the certificate in service |
    /// | `trust_bundle_publications_total` | target, result | reconciliations of a target's bundle, by result |
    /// | `trust_bundle_drift_healed_total` | target | external changes that were reverted |
    ///
    /// Label values:
    ///
    /// - certificate: `ca`, `next_ca`, `leaf` (in service) or `source` (offered by an external source)
    /// - phase: `stable`, `publish`, `trust`, `settle`, `activate`, `drain`, `retire` or `emergency`
    /// - result of a reload: `swapped`, `unchanged` or `refused`; the latter with a reason: `missing`, `unreadable`, `malformed`,
    ///   `mismatch`, `expired`, `not_yet_valid`, `wrong_name` or `untrusted`
    /// - result of a publication: `written`, `unchanged`, `conflict` or `error`
    #[must_use]
    pub fn with_metrics(self, registry: &mut Registry) -> Self {
        Self { metrics: Metrics::new(registry), ..self }
    }

    /// Returns the certificate resolver for the TLS configuration. It rejects handshakes until the source has
    /// provided a [first certificate](Self::first_certificate).
    #[must_use]
    pub fn resolver(&self) -> Arc<ServingCertificateResolver> {
        Arc::clone(&self.resolver)
    }

    /// Completes when the [resolver](Self::resolver) has its first certificate, or never if
    /// [`run`](Self::run) ends before.
    ///
    /// A server that binds its port immediately but accepts connections only after this future completes
    /// delays early clients instead of rejecting them. Stop waiting when the process receives its termination
    /// signal.
    ///
    /// ```no_run
    /// # async fn start(certificates: &lucid_certs::Certificates, asked_to_end: impl Future<Output = ()>) {
    /// tokio::select! {
    ///     () = certificates.first_certificate() => {} // accept connections
    ///     () = asked_to_end => {}
    /// }
    /// # }
    /// ```
    pub fn first_certificate(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut has_certificate = self.has_certificate.subscribe();
        async move {
            if has_certificate.wait_for(|has| *has).await.is_err() {
                future::pending().await
            }
        }
    }

    /// Returns a receiver that is `true` while callers accept the serving certificate: it verifies for all
    /// names against the bundle that was last read back from every target.
    ///
    /// Use it for the readiness probe. A failure to re-read the targets does not end readiness: callers still
    /// have the previous bundle, and other replicas are affected alike. Do not use it for the liveness probe,
    /// because a restart does not fix certificates.
    ///
    /// An expired or not yet valid certificate is not accepted. If the system clock is set, readiness is
    /// updated within about a second and the driver gets a new certificate from the source.
    ///
    /// A source that fails at start does not end [`run`](Self::run), because a Secret may be mounted or
    /// issued later; the log names the missing object. A program that prefers to exit can use a timeout:
    ///
    /// ```no_run
    /// # #[cfg(feature = "files")]
    /// # async fn start(
    /// #     certificates: lucid_certs::Certificates,
    /// #     asked_to_end: impl Future<Output = ()> + Send + 'static,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use lucid_certs::source::FileSource;
    /// let mut ready = certificates.ready();
    /// tokio::spawn(certificates.run(FileSource::in_directory("/tls"), asked_to_end));
    /// tokio::time::timeout(Duration::from_secs(30), ready.wait_for(|ready| *ready)).await??;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Runs the driver until `shutdown` completes. Failures are logged, counted and retried; the certificate
    /// in service stays in service.
    ///
    /// Pass the termination signal as `shutdown`, not the end of serving: during an uninstallation the
    /// targets are deleted while processes terminate, and the driver must not write to them again. After
    /// `shutdown` completes, no further write starts and the sender of [`ready`](Self::ready) is dropped.
    /// Stopping is safe after each step.
    pub async fn run(self, source: impl CertificateSource, shutdown: impl Future<Output = ()>) {
        let mut run = Run::new(self, source);
        tokio::select! {
            // Polls `shutdown` first so that no write starts when both are ready.
            biased;
            () = shutdown => {}
            () = run.forever() => {}
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets: Vec<_> = self.targets.iter().map(|target| target.0.name()).collect();
        f.debug_struct("Certificates")
            .field("names", &self.names)
            .field("targets", &targets)
            .finish_non_exhaustive()
    }
}
