//! Serving what a source offers, in the order that loses no call

mod clock;
mod complaints;
pub(crate) mod live;
mod run;
pub(crate) mod swap;

use std::{
    fmt,
    future::{self, Future},
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;

use self::run::Run;
use crate::{
    metrics::Metrics, names::ServingNames, source::CertificateSource, target::TrustTarget,
    tls::ServingCertificateResolver,
};

/// Keeps a server supplied with a certificate that its callers accept.
///
/// It asks a [`CertificateSource`] what to serve and what to trust, brings the trust to the
/// [targets](Self::with_targets), reads it back, and only then swaps the certificate that the
/// [resolver](Self::resolver) shows. The crate's [front page](crate) explains why in this order.
///
/// ```no_run
/// # #[cfg(feature = "files")]
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use lucid_certs::{Certificates, ServerTls, ServingNames, source::Files};
/// use tokio::signal::unix::{SignalKind, signal};
///
/// let names = ServingNames::for_services("my-system", &["my-webhook"])?;
/// let certificates = Certificates::new(names);
/// let tls = ServerTls::new(certificates.resolver()).build()?; // for tokio-rustls, or anything on rustls
/// let ready = certificates.ready(); // for the readiness probe
/// let source = Files::new("/tls/tls.crt", "/tls/tls.key");
/// let mut terminate = signal(SignalKind::terminate())?; // asked to end, it writes nothing any more
/// tokio::spawn(certificates.run(source, async move { drop(terminate.recv().await) }));
/// # drop((tls, ready));
/// # Ok(())
/// # }
/// ```
pub struct Certificates {
    names: ServingNames,
    targets: Vec<Arc<dyn TrustTarget>>,
    resolver: Arc<ServingCertificateResolver>,
    has_certificate: watch::Sender<bool>,
    ready: watch::Sender<bool>,
    settle: Duration,
    metrics: Metrics,
}

impl Certificates {
    /// For a server that is called by `names`. A certificate that lacks one of them is not taken; so where it comes
    /// from elsewhere, name only what callers really use, such as `<service>.<namespace>.svc`.
    #[must_use]
    pub fn new(names: ServingNames) -> Self {
        Self {
            names,
            targets: Vec::new(),
            resolver: Arc::new(ServingCertificateResolver::empty()),
            has_certificate: watch::Sender::new(false),
            ready: watch::Sender::new(false),
            settle: Duration::from_mins(1),
            metrics: Metrics::default(),
        }
    }

    /// Where callers look for what to trust. Without targets, somebody else sees to it, and nothing is checked.
    #[must_use]
    pub fn with_targets(mut self, targets: impl IntoIterator<Item = Arc<dyn TrustTarget>>) -> Self {
        self.targets.extend(targets);
        self
    }

    /// How long every target must be seen to trust the issuer of a certificate before that is swapped in for another:
    /// a minute, unless said otherwise. Use the [`Timing::settle`](crate::Timing::settle) of a self-managed source.
    #[must_use]
    pub fn with_settle(self, settle: Duration) -> Self {
        Self { settle, ..self }
    }

    /// Counts into these
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// What to serve with. It has no certificate, and refuses handshakes, until the source had a
    /// [first one](Self::first_certificate) to offer.
    #[must_use]
    pub fn resolver(&self) -> Arc<ServingCertificateResolver> {
        Arc::clone(&self.resolver)
    }

    /// Completes when the [resolver](Self::resolver) has its first certificate; never if [`run`](Self::run) ends before.
    ///
    /// A server that listens at once, and accepts connections only then, lets early clients wait for their handshake
    /// instead of refusing it. Do not wait past the signal by which the process is asked to end.
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

    /// Whether callers accept what is served: the certificate verifies for the names against what was read back from
    /// every target.
    ///
    /// It is for the readiness probe, and says whether calls should come here. Failing to read the targets again is no
    /// reason to send them elsewhere: callers have the bundle of before, and no other replica is better off. Liveness
    /// has nothing to do with certificates: a restart mends none.
    ///
    /// A certificate that is expired, or not valid yet, is not accepted. When the system clock is set, this is noticed
    /// within about a second, and the source is asked for another certificate.
    ///
    /// A source that is wrong at start is no error of [`run`](Self::run): a Secret may be mounted, or issued, later. The
    /// log says what is missing. A program that had rather end than wait for long can say so:
    ///
    /// ```no_run
    /// # #[cfg(feature = "files")]
    /// # async fn start(
    /// #     certificates: lucid_certs::Certificates,
    /// #     asked_to_end: impl Future<Output = ()> + Send + 'static,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use lucid_certs::source::Files;
    /// let mut ready = certificates.ready();
    /// tokio::spawn(certificates.run(Files::in_directory("/tls"), asked_to_end));
    /// tokio::time::timeout(Duration::from_secs(30), ready.wait_for(|ready| *ready)).await??;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Keeps everything in force until `shutdown` completes. Failures are logged, counted and tried again; what was
    /// served stays served meanwhile.
    ///
    /// Pass the signal by which the process is asked to end, and not the end of its serving: an uninstallation deletes
    /// the targets while processes terminate, and nobody must make them again. When `shutdown` completes, no further
    /// write begins, and [`ready`](Self::ready) has no sender any more. Each step is safe to be the last.
    pub async fn run(self, source: impl CertificateSource, shutdown: impl Future<Output = ()>) {
        let mut run = Run::new(self, source);
        tokio::select! {
            // In this order, or a write might begin when both are ready.
            biased;
            () = shutdown => {}
            () = run.forever() => {}
        }
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets: Vec<_> = self.targets.iter().map(|target| target.name()).collect();
        f.debug_struct("Certificates")
            .field("names", &self.names)
            .field("targets", &targets)
            .finish_non_exhaustive()
    }
}
