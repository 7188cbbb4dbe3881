//! Serving what a source offers, in the order that loses no call

mod live;
mod swap;

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use futures::{
    StreamExt,
    future::join_all,
    stream::{self, BoxStream},
};
use tokio::{sync::watch, time::timeout};
use tracing::{debug, info, warn};

use self::{
    live::{Retained, TrustedSince},
    swap::Swap,
};
use crate::{
    bundle::TrustBundle,
    metrics::{CertificateKind, Metrics, Publication, Reload, SourceMetrics, TargetMetrics},
    names::ServingNames,
    serving::ServingCertificate,
    source::{CertificateSource, Live, Offer, SourceError, Trust, check},
    target::{Contention, Reading, TargetError, TrustTarget},
    tls::ServingCertificateResolver,
};

/// How long an API server may take to answer about one target
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked at everything when nothing happens, by a timer that may stand still while the machine is
/// suspended; what is due is then decided by the wall clock
const INTERVAL: Duration = Duration::from_mins(1);

/// Between two looks, however much happens
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// Pauses after failures
const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(30);

/// How long a replica that starts waits until it calls itself ready, when it has brought the trust in its certificate
/// to the targets itself: API servers get to hear of it. There is nothing that could be lost by waiting.
const FIRST_SETTLE: Duration = Duration::from_secs(2);

/// How long state of health is reported by the log when nothing happens
const HEARTBEAT: Duration = Duration::from_hours(24);

/// Keeps a server supplied with a certificate that its callers accept.
///
/// It asks a [`CertificateSource`] what to serve and what to trust, brings the trust to the
/// [targets](Self::with_targets), reads it back, and only then swaps the certificate that the
/// [resolver](Self::resolver) shows. The crate's [front page](crate) explains why in this order.
///
/// ```no_run
/// # #[cfg(feature = "files")]
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use lucid_certs::{Certificates, ServingNames, source::Files};
///
/// let names = ServingNames::for_services("my-system", &["my-webhook"])?;
/// let certificates = Certificates::new(names);
/// let tls = lucid_certs::server_config(certificates.resolver())?; // for tokio-rustls, or anything on rustls
/// let ready = certificates.ready(); // for the readiness probe
/// let source = Files::new("/tls/tls.crt", "/tls/tls.key");
/// tokio::spawn(certificates.run(source, async { drop(tokio::signal::ctrl_c().await) }));
/// # drop((tls, ready));
/// # Ok(())
/// # }
/// ```
pub struct Certificates {
    names: ServingNames,
    targets: Vec<Arc<dyn TrustTarget>>,
    resolver: Arc<ServingCertificateResolver>,
    ready: watch::Sender<bool>,
    settle: Duration,
    metrics: Metrics,
}

struct Target {
    target: Arc<dyn TrustTarget>,
    metrics: TargetMetrics,
    contention: Contention,
    /// What it was last seen to hold of what was wanted
    held: Option<TrustBundle>,
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

    /// What to serve with. It has no certificate, and refuses handshakes, until the source had a first one to offer.
    #[must_use]
    pub fn resolver(&self) -> Arc<ServingCertificateResolver> {
        Arc::clone(&self.resolver)
    }

    /// Whether callers accept what is served: the certificate verifies for the names against what was read back from
    /// every target.
    ///
    /// It is for the readiness probe, and says whether calls should come here. Failing to read the targets again is no
    /// reason to send them elsewhere: callers have the bundle of before, and no other replica is better off. Liveness
    /// has nothing to do with certificates: a restart mends none.
    #[must_use]
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Keeps everything in force until `shutdown` completes. Failures are logged, counted and tried again; what was
    /// served stays served meanwhile.
    ///
    /// Pass the signal by which the process is asked to end, and not the end of its serving: an uninstallation deletes
    /// the targets while processes terminate, and nobody must make them again. When `shutdown` completes, no further
    /// write begins. Each step is safe to be the last.
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

struct Run<S> {
    certificates: Certificates,
    source: S,
    metrics: SourceMetrics,
    targets: Vec<Target>,
    changes: BoxStream<'static, ()>,
    readings: BTreeMap<String, Option<Reading>>,
    trusted_since: TrustedSince,
    retained: Retained,
    serving: Option<ServingCertificate>,
    /// What the source last said, for as long as it has nothing better to say
    offer: Option<Offer>,
    /// Whether callers were seen to accept what is served, long enough to count
    proven: bool,
    complaints: BTreeMap<String, String>,
    failures: u32,
    heartbeat: Option<SystemTime>,
}

impl<S: CertificateSource> Run<S> {
    fn new(certificates: Certificates, source: S) -> Self {
        let changes = certificates.targets.iter().map(|target| target.changes());
        // Without targets there is no change, and no end either.
        let targets = certificates.targets.iter().map(|target| Target {
            target: Arc::clone(target),
            metrics: certificates.metrics.target(target.name()),
            contention: Contention::default(),
            held: None,
        });
        let targets = targets.collect();
        let changes = stream::select_all(changes.chain([stream::pending().boxed()])).boxed();
        Self {
            metrics: certificates.metrics.source(source.name()),
            certificates,
            source,
            targets,
            changes,
            readings: BTreeMap::new(),
            trusted_since: TrustedSince::default(),
            retained: Retained::default(),
            serving: None,
            offer: None,
            proven: false,
            complaints: BTreeMap::new(),
            failures: 0,
            heartbeat: None,
        }
    }

    async fn forever(&mut self) {
        loop {
            let wait = self.round().await.max(MIN_PAUSE);
            let earliest = tokio::time::Instant::now() + MIN_PAUSE;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.source.changed() => {}
                Some(()) = self.changes.next() => {}
            }
            // Many changes at once are one.
            tokio::time::sleep_until(earliest).await;
            while futures::FutureExt::now_or_never(self.changes.next()).flatten().is_some() {}
        }
    }

    /// Looks at everything and does what is due. Returns when to look again.
    async fn round(&mut self) -> Duration {
        let now = SystemTime::now();
        // Before the source is asked: what it reads of its own is then not older than this.
        let before = self.read().await;
        let trusted_for = self.trusted_since.durations(&before, Instant::now());
        let live = Live { targets: before.clone(), trusted_for, serving: self.serving.clone() };
        let fresh = self.ask(&live, now).await;

        let is_fresh = fresh.is_some();
        if let Some(offer) = fresh {
            self.offer = Some(offer);
        }
        let Some(offer) = self.offer.clone() else {
            self.readings = before;
            let wait = self.judge(now);
            return wait.min(self.retry_after());
        };
        let wanted = match &offer.trust {
            Trust::Elsewhere => None,
            Trust::AtLeast(bundle) => Some(self.retained.add_to(bundle, &before, Instant::now(), now)),
            // The source is who knows what others serve under, and it did not say.
            Trust::Exactly(_) if !is_fresh => None,
            Trust::Exactly(bundle) => Some(bundle.clone()),
        };
        let (after, mut wait) = match wanted {
            Some(wanted) => self.publish(&wanted, before.clone()).await,
            None => (before.clone(), INTERVAL),
        };
        self.trusted_since.observe(&after, offer.trust.bundle(), Instant::now());
        self.readings = after;

        if let Some(candidate) = &offer.certificate {
            wait = wait.min(self.swap(candidate, &before, now));
        }
        wait = wait.min(self.judge(now));
        if !is_fresh || self.readings.values().any(Option::is_none) {
            return wait.min(self.retry_after());
        }
        self.failures = 0;
        self.metrics.success(now);
        self.beat(now);
        wait.min(offer.ask_again.unwrap_or(INTERVAL))
    }

    async fn read(&mut self) -> BTreeMap<String, Option<Reading>> {
        let reads = self.targets.iter().map(|target| async {
            let name = target.target.name().to_owned();
            let reading = timeout(PATIENCE, target.target.read()).await;
            let reading = reading.unwrap_or_else(|_| Err(timed_out("get", &name)));
            (name, reading)
        });
        let readings = join_all(reads).await;
        for (target, (_, reading)) in self.targets.iter().zip(&readings) {
            if reading.is_err() {
                target.metrics.publication(Publication::Error);
            }
        }
        readings.into_iter().map(|(name, reading)| (name.clone(), self.note(&name, reading))).collect()
    }

    async fn ask(&mut self, live: &Live, now: SystemTime) -> Option<Offer> {
        let name = self.source.name();
        let offer = match self.source.offer(live, now).await {
            Ok(offer) => offer,
            Err(error) => {
                self.refuse(&error);
                return None;
            }
        };
        if let Some(certificate) = &offer.certificate
            && let Err(error) = check(certificate, &self.certificates.names, offer.trust.bundle(), now)
        {
            self.refuse(&error);
            return None;
        }
        if self.complaints.remove(name).is_some() {
            info!(source = name, "certificates can be had again");
        }
        if let Some(rotation) = &offer.rotation {
            self.certificates.metrics.phase(rotation.phase);
            self.metrics.expiry(CertificateKind::Ca, Some(rotation.ca.not_after));
            self.metrics.expiry(CertificateKind::NextCa, rotation.next.map(|next| next.not_after));
        } else if let Some(certificate) = &offer.certificate {
            self.metrics.expiry(CertificateKind::Source, Some(certificate.validity().not_after));
        }
        Some(offer)
    }

    /// Writes `wanted` to the targets that do not hold it. Returns what they hold then, and when to try again.
    async fn publish(
        &mut self,
        wanted: &TrustBundle,
        mut readings: BTreeMap<String, Option<Reading>>,
    ) -> (BTreeMap<String, Option<Reading>>, Duration) {
        let mut wait = INTERVAL;
        let mut written = Vec::new();
        for Target { target, metrics, contention, held } in &mut self.targets {
            let name = target.name();
            let Some(Some(reading)) = readings.get(name) else { continue };
            if reading.holds(wanted) {
                metrics.publication(Publication::Unchanged);
                *held = Some(wanted.clone());
                continue;
            }
            // It held what is wanted, and somebody changed it: the first time it is put back at once.
            let is_healing = held.as_ref() == Some(wanted);
            let pause = if is_healing { contention.heal_after(Instant::now()) } else { Duration::ZERO };
            if !pause.is_zero() {
                wait = wait.min(pause);
                continue;
            }
            let is_drift = is_healing && !reading.holds_bytes_of(wanted);
            let outcome = timeout(PATIENCE, target.write(wanted, reading)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(timed_out("write", name)));
            match &outcome {
                Ok(written) => {
                    metrics.publication(Publication::Written);
                    *held = Some(wanted.clone());
                    if is_drift {
                        metrics.drift_healed();
                    }
                    if is_healing {
                        let owners = reading.other_owners().join(", ");
                        warn!(target = name, owners, "somebody else changed it; it is put back");
                    } else {
                        let authorities: Vec<_> = wanted.fingerprints().map(|it| it.to_string()).collect();
                        info!(target = name, ?authorities, "trust bundle published");
                    }
                    // Who changes what is written while it is written must not be met with a loop either.
                    let is_contended = is_healing || !written.holds(wanted);
                    if is_contended && contention.note_healed(Instant::now()) {
                        warn!(target = name, "somebody else keeps changing it; it is put back once a minute");
                        target.report_contention(reading).await;
                    }
                }
                Err(TargetError::Changed { .. }) => {
                    debug!(target = name, "somebody else wrote at the same time");
                    metrics.publication(Publication::Conflict);
                    // What was read stays what is known, until it is read again.
                    wait = MIN_PAUSE;
                    continue;
                }
                Err(_) => metrics.publication(Publication::Error),
            }
            written.push((name.to_owned(), outcome));
        }
        for (name, outcome) in written {
            let reading = self.note(&name, outcome);
            readings.insert(name, reading);
        }
        (readings, wait)
    }

    /// Puts `candidate` into service if it is time. Returns when to look again.
    fn swap(
        &mut self,
        candidate: &ServingCertificate,
        before: &BTreeMap<String, Option<Reading>>,
        now: SystemTime,
    ) -> Duration {
        let Certificates { names, settle, .. } = &self.certificates;
        let trusted_for = self.trusted_since.durations(&self.readings, Instant::now());
        let swap =
            Swap::decide(candidate, self.serving.as_ref(), &self.readings, names, &trusted_for, *settle, now);
        let source = self.source.name();
        match swap {
            Swap::None => {
                self.metrics.reload(Reload::Unchanged);
                INTERVAL
            }
            Swap::Wait(wait) => {
                debug!(leaf = %candidate.fingerprint(), "serving certificate waits for the trust in it");
                wait
            }
            Swap::Now => {
                if self.serving.is_none() {
                    self.proven = swap::accepted(candidate, before, names, now);
                }
                self.certificates.resolver.swap(candidate);
                self.metrics.reload(Reload::Swapped);
                info!(
                    leaf = %candidate.fingerprint(),
                    validity = %candidate.validity(),
                    source,
                    "serving certificate swapped"
                );
                self.serving = Some(candidate.clone());
                INTERVAL
            }
        }
    }

    /// Says whether callers accept what is served. Returns when that may change by time alone.
    fn judge(&mut self, now: SystemTime) -> Duration {
        let mut wait = INTERVAL;
        let names = &self.certificates.names;
        let accepted =
            self.serving.as_ref().is_some_and(|serving| swap::accepted(serving, &self.readings, names, now));
        if accepted && !self.proven {
            let trusted_for = self.trusted_since.durations(&self.readings, Instant::now());
            let settle = self.certificates.settle.min(FIRST_SETTLE);
            let settled = self
                .serving
                .as_ref()
                .and_then(|serving| swap::settled_in(serving, &self.readings, &trusted_for, settle, now));
            self.proven = settled.is_some_and(|settled| settled.is_zero());
            wait = settled.unwrap_or(wait);
        }
        let ready = accepted && self.proven;
        self.certificates.metrics.ready(ready);
        let not_after = self.serving.as_ref().map(|serving| serving.validity().not_after);
        self.metrics.expiry(CertificateKind::Leaf, not_after);
        let before = self.certificates.ready.send_replace(ready);
        if before != ready {
            if ready {
                info!("callers accept the serving certificate");
            } else {
                warn!("callers do not accept the serving certificate");
            }
        }
        wait
    }

    /// What came of looking at a target; what is wrong is said once and not at each look.
    fn note(&mut self, name: &str, outcome: Result<Reading, TargetError>) -> Option<Reading> {
        match outcome {
            Ok(reading) => {
                if self.complaints.remove(name).is_some() {
                    info!(target = name, "trust bundle can be looked after again");
                }
                Some(reading)
            }
            Err(error) => {
                let error = crate::chain(&error);
                self.complain(name.to_owned(), |complaint| warn!("{complaint}"), error);
                None
            }
        }
    }

    fn refuse(&mut self, error: &SourceError) {
        let name = self.source.name();
        self.metrics.reload(Reload::Refused(error.reason));
        let is_serving = self.serving.is_some();
        let say = |complaint: &str| {
            let reason = error.reason.as_str();
            if is_serving {
                warn!(source = name, reason, "{complaint}; the certificate in service stays");
            } else {
                warn!(source = name, reason, "{complaint}; there is none to serve yet");
            }
        };
        self.complain(name.to_owned(), say, error.problem.clone());
    }

    fn complain(&mut self, who: String, say: impl FnOnce(&str), complaint: String) {
        if self.complaints.get(&who) != Some(&complaint) {
            say(&complaint);
            self.complaints.insert(who, complaint);
        }
    }

    fn retry_after(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        (*RETRY.start() * 2u32.saturating_pow(self.failures.min(8) - 1)).min(*RETRY.end())
    }

    /// Once a day, that all is well.
    fn beat(&mut self, now: SystemTime) {
        let since = self.heartbeat.map(|last| now.duration_since(last).unwrap_or(HEARTBEAT));
        if since.is_some_and(|since| since < HEARTBEAT) {
            return;
        }
        self.heartbeat = Some(now);
        let (Some(offer), Some(serving)) = (&self.offer, &self.serving) else { return };
        let ca = offer.rotation.as_ref().map(|rotation| rotation.ca.to_string());
        let phase = offer.rotation.as_ref().map(|rotation| rotation.phase.as_str());
        info!(
            source = self.source.name(),
            leaf = %serving.fingerprint(),
            validity = %serving.validity(),
            ca,
            phase,
            ready = *self.certificates.ready.borrow(),
            "certificates checked"
        );
    }
}

fn timed_out(action: &'static str, target: &str) -> TargetError {
    TargetError::TimedOut { action, target: target.to_owned(), patience: PATIENCE }
}
