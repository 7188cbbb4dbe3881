//! The reconcile loop of [`Certificates`].

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use futures::{
    FutureExt, StreamExt,
    future::join_all,
    stream::{self, BoxStream},
};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::{
    Certificates,
    clock::Clock,
    history::{Retained, TrustedSince, trusted},
    swap::{self, Swap},
};
use crate::{
    bundle::TrustBundle,
    last_problem::LastProblem,
    metrics::{CertificateKind, Metrics, Publication, Reload},
    serving::ServingCertificate,
    source::{CertificateSource, ObservedTrust, Offer, Reason, SourceError, Trust, check},
    target::{Contention, Reading, TargetError, TrustTarget},
};

/// Timeout of a request about one target.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of [`CertificateSource::offer`].
const OFFER_TIMEOUT: Duration = Duration::from_secs(30);

/// Reconcile interval while nothing changes; due times are then evaluated by the wall clock.
const INTERVAL: Duration = Duration::from_mins(1);

const MIN_PAUSE: Duration = Duration::from_millis(50);

const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(30);

/// Delay before a starting replica becomes ready if it had to publish the bundle itself: API servers need
/// time to observe it. No target held a bundle before, so waiting fails no calls.
const FIRST_SETTLE: Duration = Duration::from_secs(2);

/// As [`FIRST_SETTLE`], if callers already trusted some CA. Calls may go to other replicas meanwhile. Shorter
/// than the settle time of a rotation, because there may be no other replicas.
const SETTLE_WITH_OTHERS: Duration = Duration::from_secs(10);

/// Interval of the log message that confirms normal operation.
const HEARTBEAT: Duration = Duration::from_hours(24);

struct Target {
    target: Arc<dyn TrustTarget>,
    contention: Contention,
    /// The wanted bundle that the target was last seen to hold.
    held: Option<TrustBundle>,
    conflicts: u32,
}

/// Number of consecutive conflicts at which a warning is logged.
const CONFLICT_WARNING_THRESHOLD: u32 = 8;

pub(super) struct Run<S> {
    certificates: Certificates,
    source: S,
    metrics: Metrics,
    targets: Vec<Target>,
    changes: BoxStream<'static, ()>,
    readings: BTreeMap<String, Option<Reading>>,
    /// Last successful reading of each target. Callers still have that bundle while the target cannot be
    /// read.
    known: BTreeMap<String, Option<Reading>>,
    trusted_since: TrustedSince,
    retained: Retained,
    serving: Option<ServingCertificate>,
    /// Last offer of the source, kept until it makes a new one.
    offer: Option<Offer>,
    /// `true` once callers were observed to accept the certificate for the settle time.
    proven: bool,
    /// `true` if some target held a bundle when this replica got its first certificate: other replicas may be
    /// serving.
    was_trusting: bool,
    /// Last logged problem of the source, of each target and of readiness.
    problems: BTreeMap<String, LastProblem>,
    failures: u32,
    heartbeat: Option<SystemTime>,
    pub(super) clock: Clock,
}

impl<S: CertificateSource> Run<S> {
    pub(super) fn new(certificates: Certificates, source: S) -> Self {
        let changes = certificates.targets.iter().map(|target| target.changes());
        certificates.metrics.add_source(source.name());
        certificates.targets.iter().for_each(|target| certificates.metrics.add_target(target.name()));
        // `pending` keeps the stream alive, also without targets.
        let targets = certificates.targets.iter().map(|target| Target {
            target: Arc::clone(target),
            contention: Contention::default(),
            held: None,
            conflicts: 0,
        });
        let targets = targets.collect();
        let changes = stream::select_all(changes.chain([stream::pending().boxed()])).boxed();
        Self {
            metrics: certificates.metrics.clone(),
            certificates,
            source,
            targets,
            changes,
            readings: BTreeMap::new(),
            known: BTreeMap::new(),
            trusted_since: TrustedSince::default(),
            retained: Retained::default(),
            serving: None,
            offer: None,
            proven: false,
            was_trusting: false,
            problems: BTreeMap::new(),
            failures: 0,
            heartbeat: None,
            clock: Clock::default(),
        }
    }

    pub(super) async fn forever(&mut self) {
        loop {
            let begin = self.clock.now();
            let wait = self.round(begin.wall).await.max(MIN_PAUSE);
            let earliest = tokio::time::Instant::now() + MIN_PAUSE;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.source.changed() => {}
                Some(()) = self.changes.next() => {}
                now = self.clock.stepped(begin) => {
                    info!("the system clock was set");
                    // Update readiness before the next round, which may take long.
                    self.update_readiness(now.wall);
                }
            }
            // Coalesce queued changes.
            tokio::time::sleep_until(earliest).await;
            while self.changes.next().now_or_never().flatten().is_some() {}
        }
    }

    /// Runs one reconcile round. Returns when the next one is due.
    async fn round(&mut self, now: SystemTime) -> Duration {
        // Read the targets before calling the source: shared state that the source reads is then at least as
        // recent as the readings.
        let before = self.read().await;
        // If a CA was removed and is now restored, its settle time restarts.
        let offered = self.offer.as_ref().and_then(|offer| offer.trust.bundle());
        let offered = offered.into_iter().flat_map(TrustBundle::fingerprints);
        self.trusted_since.observe(&trusted(&before), offered, Instant::now());
        let trusted_for = self.trusted_since.durations(&trusted(&before), Instant::now());
        let observed = ObservedTrust { targets: before.clone(), trusted_for, serving: self.serving.clone() };
        let fresh = self.request_offer(&observed, now).await;

        let is_fresh = fresh.is_some();
        if let Some(offer) = fresh {
            self.offer = Some(offer);
        }
        let Some(offer) = self.offer.clone() else {
            self.readings = before;
            let wait = self.update_readiness(now);
            return wait.min(self.retry_after());
        };
        let wanted = match &offer.trust {
            Trust::External => None,
            Trust::AtLeast(bundle) => Some(self.retained.add_to(bundle, &before, Instant::now(), now)),
            // The set of CAs in use is known to the source only, and it failed.
            Trust::Exactly(_) if !is_fresh => None,
            Trust::Exactly(bundle) => Some(bundle.clone()),
        };
        let (after, mut wait) = match wanted {
            Some(wanted) => self.publish(&wanted, before.clone()).await,
            None => (before.clone(), INTERVAL),
        };
        let offered = offer.trust.bundle().into_iter().flat_map(TrustBundle::fingerprints);
        self.trusted_since.observe(&trusted(&after), offered, Instant::now());
        self.readings = after;

        if let Some(candidate) = &offer.certificate {
            wait = wait.min(self.swap(candidate, &before, now));
        }
        wait = wait.min(self.update_readiness(now));
        let has_problem = self.offer.as_ref().is_some_and(|offer| offer.problem.is_some());
        if !is_fresh || has_problem || self.readings.values().any(Option::is_none) {
            return wait.min(self.retry_after());
        }
        self.failures = 0;
        self.metrics.success(self.source.name(), now);
        self.log_heartbeat(now);
        wait.min(offer.next_check.unwrap_or(INTERVAL))
    }

    async fn read(&mut self) -> BTreeMap<String, Option<Reading>> {
        let reads = self.targets.iter().map(|target| async {
            let name = target.target.name().to_owned();
            let reading = timeout(TIMEOUT, target.target.read()).await;
            let reading = reading.unwrap_or_else(|_| Err(timed_out("get", &name)));
            (name, reading)
        });
        let readings = join_all(reads).await;
        for (target, (_, reading)) in self.targets.iter().zip(&readings) {
            if reading.is_err() {
                self.metrics.publication(target.target.name(), Publication::Error);
            }
        }
        readings.into_iter().map(|(name, reading)| (name.clone(), self.note(&name, reading))).collect()
    }

    async fn request_offer(&mut self, observed: &ObservedTrust, now: SystemTime) -> Option<Offer> {
        let name = self.source.name();
        let offer = timeout(OFFER_TIMEOUT, self.source.offer(observed, now)).await;
        let offer = offer.unwrap_or_else(|_| {
            let problem = format!("source {name} did not respond within {OFFER_TIMEOUT:?}");
            Err(SourceError::new(Reason::Unreadable, problem))
        });
        let offer = match offer {
            Ok(offer) => offer,
            Err(error) => {
                self.reject(&error);
                return None;
            }
        };
        if offer.rotation.is_none() {
            let ca =
                offer.trust.bundle().and_then(|bundle| bundle.validities().map(|(_, it)| it.not_after).max());
            self.metrics.expiry(self.source.name(), CertificateKind::Ca, ca);
            let source = offer.certificate.as_ref().map(|certificate| certificate.validity().not_after);
            self.metrics.expiry(self.source.name(), CertificateKind::Source, source);
        }
        if let Some(certificate) = &offer.certificate
            && let Err(error) = check(certificate, &self.certificates.names, offer.trust.bundle(), now)
        {
            self.reject(&error);
            return None;
        }
        match &offer.problem {
            Some(problem) => self.reject(problem),
            None if self.last_problem(name).resolve() => info!(source = name, "the source works again"),
            None => {}
        }
        if let Some(rotation) = &offer.rotation {
            self.metrics.phase(rotation.phase);
            self.metrics.expiry(self.source.name(), CertificateKind::Ca, Some(rotation.ca.not_after));
            self.metrics.expiry(
                self.source.name(),
                CertificateKind::NextCa,
                rotation.next.map(|next| next.not_after),
            );
        }
        Some(offer)
    }

    /// Writes `wanted` to the targets that do not hold it. Returns the new readings and when to retry.
    async fn publish(
        &mut self,
        wanted: &TrustBundle,
        mut readings: BTreeMap<String, Option<Reading>>,
    ) -> (BTreeMap<String, Option<Reading>>, Duration) {
        let mut wait = INTERVAL;
        let mut written = Vec::new();
        let metrics = &self.metrics;
        for Target { target, contention, held, conflicts } in &mut self.targets {
            let name = target.name();
            let Some(Some(reading)) = readings.get(name) else { continue };
            if reading.holds(wanted) {
                metrics.publication(name, Publication::Unchanged);
                *held = Some(wanted.clone());
                continue;
            }
            // Drift: the target held `wanted` before. The first repair is immediate.
            let is_healing = held.as_ref() == Some(wanted);
            let pause = if is_healing { contention.heal_after(Instant::now()) } else { Duration::ZERO };
            if !pause.is_zero() {
                wait = wait.min(pause);
                continue;
            }
            let is_drift = is_healing && !reading.holds_bytes_of(wanted);
            let outcome = timeout(TIMEOUT, target.write(wanted, reading)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(timed_out("write", name)));
            match &outcome {
                Ok(written) => {
                    *conflicts = 0;
                    metrics.publication(name, Publication::Written);
                    *held = Some(wanted.clone());
                    if is_drift {
                        metrics.drift_healed(name);
                    }
                    if is_healing {
                        let owners = reading.other_owners().join(", ");
                        warn!(target = name, owners, "changed by another manager; restored");
                    } else {
                        let authorities: Vec<_> = wanted.fingerprints().map(|it| it.to_string()).collect();
                        info!(target = name, ?authorities, "trust bundle published");
                    }
                    // A target that is overwritten during the write must not cause a write loop either.
                    let is_contended = is_healing || !written.holds(wanted);
                    // Differences besides the bundle are not reported: replicas with different settings may
                    // cause them.
                    if is_contended && contention.note_healed(Instant::now()) && is_drift {
                        warn!(target = name, "another manager keeps changing it; restoring it once a minute");
                        timeout(TIMEOUT, target.report_contention(reading)).await.ok();
                    }
                }
                Err(TargetError::Changed { .. }) => {
                    debug!(target = name, "write conflict");
                    metrics.publication(name, Publication::Conflict);
                    // Keep the last reading until the next read.
                    wait = wait.min(MIN_PAUSE * 2u32.saturating_pow((*conflicts).min(10)));
                    *conflicts = conflicts.saturating_add(1);
                    if *conflicts == CONFLICT_WARNING_THRESHOLD {
                        warn!(target = name, conflicts, "every write conflicts; retrying with backoff");
                    }
                    continue;
                }
                Err(_) => metrics.publication(name, Publication::Error),
            }
            written.push((name.to_owned(), outcome));
        }
        for (name, outcome) in written {
            let reading = self.note(&name, outcome);
            readings.insert(name, reading);
        }
        (readings, wait)
    }

    /// Puts `candidate` into service if it is time. Returns when to check again.
    fn swap(
        &mut self,
        candidate: &ServingCertificate,
        before: &BTreeMap<String, Option<Reading>>,
        now: SystemTime,
    ) -> Duration {
        let Certificates { names, settle, .. } = &self.certificates;
        let trusted_for = self.trusted_since.durations(&trusted(&self.readings), Instant::now());
        let swap =
            Swap::decide(candidate, self.serving.as_ref(), &self.readings, names, &trusted_for, *settle, now);
        let source = self.source.name();
        match swap {
            Swap::None => {
                self.metrics.reload(self.source.name(), Reload::Unchanged);
                INTERVAL
            }
            Swap::Wait(wait) => {
                debug!(leaf = %candidate.fingerprint(), "serving certificate waits until its issuer is trusted");
                wait
            }
            Swap::Now => {
                if self.serving.is_none() {
                    self.proven = swap::accepted(candidate, before, names, now);
                    self.was_trusting = before.values().flatten().any(|reading| reading.bundle().is_some());
                }
                self.certificates.resolver.swap(candidate);
                self.certificates.has_certificate.send_replace(true);
                self.metrics.reload(self.source.name(), Reload::Swapped);
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

    /// Updates readiness. Returns when readiness may change by time alone.
    fn update_readiness(&mut self, now: SystemTime) -> Duration {
        let mut wait = INTERVAL;
        for (name, reading) in &self.readings {
            let known = self.known.entry(name.clone()).or_default();
            if reading.is_some() {
                known.clone_from(reading);
            }
        }
        let names = &self.certificates.names;
        let accepted =
            self.serving.as_ref().is_some_and(|serving| swap::accepted(serving, &self.known, names, now));
        if accepted && !self.proven {
            let trusted_for = self.trusted_since.durations(&trusted(&self.readings), Instant::now());
            let settle = if self.was_trusting { SETTLE_WITH_OTHERS } else { FIRST_SETTLE };
            let settle = settle.min(self.certificates.settle);
            let settled = self
                .serving
                .as_ref()
                .and_then(|serving| swap::settled_in(serving, &self.readings, &trusted_for, settle, now));
            self.proven = settled.is_some_and(|settled| settled.is_zero());
            wait = settled.unwrap_or(wait);
        }
        let ready = accepted && self.proven;
        match self.serving.as_ref().and_then(|serving| swap::refusal(serving, &self.known, names, now)) {
            Some(why) => {
                if self.last_problem("readiness").is_new(&why) {
                    warn!("callers do not accept the certificate: {why}");
                }
            }
            None => drop(self.last_problem("readiness").resolve()),
        }
        self.metrics.ready(ready);
        let not_after = self.serving.as_ref().map(|serving| serving.validity().not_after);
        self.metrics.expiry(self.source.name(), CertificateKind::Leaf, not_after);
        if let Some(serving) = &self.serving {
            let end = serving.validity().not_after.duration_since(now).ok();
            wait = end.map_or(wait, |end| wait.min(end + Duration::from_secs(1)));
        }
        let before = self.certificates.ready.send_replace(ready);
        if ready && !before {
            info!("callers accept the serving certificate");
        }
        wait
    }

    /// Unwraps the result of a target operation. Logs an error once, not in every round.
    fn note(&mut self, name: &str, outcome: Result<Reading, TargetError>) -> Option<Reading> {
        match outcome {
            Ok(reading) => {
                if self.last_problem(name).resolve() {
                    info!(target = name, "the target works again");
                }
                Some(reading)
            }
            Err(error) => {
                let problem = crate::chain(&error);
                if self.last_problem(name).is_new(&problem) {
                    warn!("{problem}");
                }
                None
            }
        }
    }

    fn reject(&mut self, error: &SourceError) {
        let name = self.source.name();
        self.metrics.reload(self.source.name(), Reload::Refused(error.reason));
        if self.last_problem(name).is_new(&error.problem) {
            let reason = error.reason.as_str();
            if self.serving.is_some() {
                warn!(source = name, reason, "{error}; the certificate in service stays");
            } else {
                warn!(source = name, reason, "{error}; no certificate is in service yet");
            }
        }
    }

    fn last_problem(&mut self, subject: &str) -> &mut LastProblem {
        self.problems.entry(subject.to_owned()).or_default()
    }

    fn retry_after(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        (*RETRY.start() * 2u32.saturating_pow(self.failures.min(8) - 1)).min(*RETRY.end())
    }

    /// Logs a daily message that certificates were checked.
    fn log_heartbeat(&mut self, now: SystemTime) {
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
    TargetError::TimedOut { action, target: target.to_owned(), timeout: TIMEOUT }
}
