//! The reconcile loop of [`Certificates`].

use std::{
    collections::BTreeMap,
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
    history::{Retained, Trusted, TrustedSince},
    swap::{self, Readings, Swap},
    target::{DrivenTarget, INTERVAL, MIN_PAUSE, Wanted},
};
use crate::{
    bundle::TrustBundle,
    fingerprint::Fingerprint,
    last_problem::LastProblem,
    metrics::{CertificateKind, Metrics, Reload},
    serving::ServingCertificate,
    source::{CertificateSource, ObservedTrust, Offer, Reason, SourceError, Trust, check},
    target::Reading,
};

const OFFER_TIMEOUT: Duration = Duration::from_secs(30);

const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(30);

/// Delay before a starting replica becomes ready if it had to publish the bundle itself: API servers need
/// time to observe it. No target held a bundle before, so no call can fail while it waits.
const FIRST_SETTLE: Duration = Duration::from_secs(2);

/// As [`FIRST_SETTLE`], if callers already trusted some CA. Calls may go to other replicas meanwhile. Shorter
/// than the settle time of a rotation, because there may be no other replicas.
const SETTLE_WITH_OTHERS: Duration = Duration::from_secs(10);

/// Interval of the log message that confirms normal operation.
const HEARTBEAT: Duration = Duration::from_hours(24);

pub(super) struct Run<S> {
    certificates: Certificates,
    source: S,
    metrics: Metrics,
    targets: Vec<DrivenTarget>,
    changes: BoxStream<'static, ()>,
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
    source_problem: LastProblem,
    readiness_problem: LastProblem,
    failures: u32,
    heartbeat: Option<SystemTime>,
    pub(super) clock: Clock,
}

impl<S: CertificateSource> Run<S> {
    pub(super) fn new(certificates: Certificates, source: S) -> Self {
        let metrics = certificates.metrics.clone();
        metrics.add_source(source.name());
        certificates.targets.iter().for_each(|target| metrics.add_target(target.0.name()));
        let changes = certificates.targets.iter().map(|target| target.0.changes());
        Self {
            metrics,
            // `pending` keeps the stream alive, also without targets.
            changes: stream::select_all(changes.chain([stream::pending().boxed()])).boxed(),
            targets: certificates.targets.iter().cloned().map(DrivenTarget::new).collect(),
            certificates,
            source,
            trusted_since: TrustedSince::default(),
            retained: Retained::default(),
            serving: None,
            offer: None,
            proven: false,
            was_trusting: false,
            source_problem: LastProblem::default(),
            readiness_problem: LastProblem::default(),
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
        join_all(self.targets.iter_mut().map(|target| target.read(&self.metrics))).await;
        // If a CA was removed and is now restored, its settle time restarts.
        self.observe_trust();
        let targets = self.targets.iter().map(|target| (target.name().to_owned(), target.before.clone()));
        let observed = ObservedTrust {
            targets: targets.collect(),
            trusted_for: self.trusted_for(),
            serving: self.serving.clone(),
        };
        let fresh = self.request_offer(&observed, now).await;

        let is_fresh = fresh.is_some();
        self.offer = fresh.or(self.offer.take());
        let Some(offer) = self.offer.clone() else {
            let mut wait = INTERVAL;
            if self.source.has_external_trust() {
                wait = self.publish(&Wanted::External).await;
            }
            wait = wait.min(self.update_readiness(now));
            return wait.min(self.retry_after());
        };
        let wanted = match &offer.trust {
            Trust::External => Some(Wanted::External),
            Trust::AtLeast(bundle) => {
                let live = live_bundle(self.readings(|target| &target.before));
                Some(Wanted::Bundle(self.retained.add_to(bundle, live, Instant::now(), now)))
            }
            // The set of CAs in use is known to the source only, and it failed.
            Trust::Exactly(_) if !is_fresh => None,
            Trust::Exactly(bundle) => Some(Wanted::Bundle(bundle.clone())),
        };
        let mut wait = INTERVAL;
        if let Some(wanted) = wanted {
            wait = self.publish(&wanted).await;
        }
        self.observe_trust();

        if let Some(candidate) = &offer.certificate {
            wait = wait.min(self.swap(candidate, now));
        }
        wait = wait.min(self.update_readiness(now));
        if !is_fresh || offer.problem.is_some() || self.targets.iter().any(|target| target.after.is_none()) {
            return wait.min(self.retry_after());
        }
        self.failures = 0;
        self.metrics.success(self.source.name(), now);
        self.log_heartbeat(now);
        wait.min(offer.next_check.unwrap_or(INTERVAL))
    }

    /// Writes `wanted` to the targets. Returns when to retry.
    async fn publish(&mut self, wanted: &Wanted) -> Duration {
        let mut wait = INTERVAL;
        for target in &mut self.targets {
            wait = wait.min(target.publish(wanted, &self.metrics).await);
        }
        wait
    }

    fn readings(&self, of: fn(&DrivenTarget) -> &Option<Reading>) -> Readings<'_> {
        self.targets.iter().map(|target| (target.name(), of(target).as_ref())).collect()
    }

    fn trusted(&self) -> Vec<Option<Trusted>> {
        self.targets.iter().map(|target| target.after.as_ref().map(Trusted::of)).collect()
    }

    fn observe_trust(&mut self) {
        let offered = self.offer.as_ref().and_then(|offer| offer.trust.bundle());
        let offered: Vec<_> = offered.into_iter().flat_map(TrustBundle::fingerprints).collect();
        let trusted = self.trusted();
        self.trusted_since.observe(&trusted, offered, Instant::now());
    }

    fn trusted_for(&self) -> BTreeMap<Fingerprint, Duration> {
        self.trusted_since.durations(&self.trusted(), Instant::now())
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
            let bundle = offer.trust.bundle();
            let ca = bundle.and_then(|bundle| bundle.validities().map(|(_, it)| it.not_after).max());
            self.metrics.expiry(name, CertificateKind::Ca, ca);
            let source = offer.certificate.as_ref().map(|certificate| certificate.validity().not_after);
            self.metrics.expiry(name, CertificateKind::Source, source);
        }
        if let Some(certificate) = &offer.certificate
            && let Err(error) =
                check(certificate, self.certificates.names_of(certificate), offer.trust.bundle(), now)
        {
            self.reject(&error);
            return None;
        }
        // The registration has to fit the first certificate before it is served.
        if let (Some(certificate), None) = (&offer.certificate, &self.serving) {
            self.certificates.announce(certificate);
        }
        match &offer.problem {
            Some(problem) => self.reject(problem),
            None if self.source_problem.resolve() => info!(source = name, "the source works again"),
            None => {}
        }
        if let Some(rotation) = &offer.rotation {
            self.metrics.phase(rotation.phase);
            self.metrics.expiry(name, CertificateKind::Ca, Some(rotation.ca.not_after));
            self.metrics.expiry(name, CertificateKind::NextCa, rotation.next.map(|next| next.not_after));
        }
        Some(offer)
    }

    /// Puts `candidate` into service if it is time. Returns when to check again.
    fn swap(&mut self, candidate: &ServingCertificate, now: SystemTime) -> Duration {
        let (names, settle) = (self.certificates.names_of(candidate), &self.certificates.timing.settle);
        let after = self.readings(|target| &target.after);
        let swap = Swap::decide(
            candidate,
            self.serving.as_ref(),
            &after,
            names,
            self.serving.as_ref().map_or(names, |serving| self.certificates.names_of(serving)),
            swap::settled_in(candidate, &after, &self.trusted_for(), *settle, now),
            now,
        );
        let source = self.source.name();
        match swap {
            Swap::None => {
                self.metrics.reload(source, Reload::Unchanged);
                INTERVAL
            }
            Swap::Wait(wait) => {
                debug!(leaf = %candidate.fingerprint(), "serving certificate waits until its issuer is trusted");
                wait
            }
            Swap::Now => {
                if self.serving.is_none() {
                    let before = self.readings(|target| &target.before);
                    let is_accepted = swap::refusal(candidate, &before, names, now).is_none();
                    self.was_trusting = live_bundle(before).is_some();
                    self.proven = is_accepted;
                }
                self.certificates.resolver.swap(candidate);
                self.certificates.has_certificate.send_replace(true);
                self.metrics.reload(source, Reload::Swapped);
                info!(
                    leaf = %candidate.fingerprint(),
                    validity = %candidate.validity(),
                    source,
                    "serving certificate swapped"
                );
                self.serving = Some(candidate.clone());
                // Targets that depend on the names are written in the next round.
                if self.certificates.announce(candidate) { Duration::ZERO } else { INTERVAL }
            }
        }
    }

    /// Updates readiness. Returns when readiness may change by time alone.
    fn update_readiness(&mut self, now: SystemTime) -> Duration {
        let mut wait = INTERVAL;
        let mut refusal = None;
        if let Some(serving) = &self.serving {
            let known = self.readings(|target| &target.known);
            refusal = swap::refusal(serving, &known, self.certificates.names_of(serving), now);
            if refusal.is_none() && !self.proven {
                let settle = if self.was_trusting { SETTLE_WITH_OTHERS } else { FIRST_SETTLE };
                let settle = settle.min(self.certificates.timing.settle);
                let after = self.readings(|target| &target.after);
                let settled = swap::settled_in(serving, &after, &self.trusted_for(), settle, now);
                self.proven = settled.is_some_and(|settled| settled.is_zero());
                wait = settled.unwrap_or(wait);
            }
        }
        let ready = self.serving.is_some() && refusal.is_none() && self.proven;
        match refusal {
            Some(why) if self.readiness_problem.is_new(&why) => {
                warn!("callers do not accept the certificate: {why}");
            }
            Some(_) => {}
            None => drop(self.readiness_problem.resolve()),
        }
        self.metrics.ready(ready);
        let not_after = self.serving.as_ref().map(|serving| serving.validity().not_after);
        self.metrics.expiry(self.source.name(), CertificateKind::Leaf, not_after);
        if let Some(end) = not_after.and_then(|end| end.duration_since(now).ok()) {
            wait = wait.min(end + Duration::from_secs(1));
        }
        let before = self.certificates.ready.send_replace(ready);
        if ready && !before {
            info!("callers accept the serving certificate");
        }
        wait
    }

    fn reject(&mut self, error: &SourceError) {
        let name = self.source.name();
        self.metrics.reload(name, Reload::Refused(error.reason));
        if self.source_problem.is_new(&error.problem) {
            let reason = error.reason.as_str();
            if self.serving.is_some() {
                warn!(source = name, reason, "{error}; the certificate in service stays");
            } else {
                warn!(source = name, reason, "{error}; no certificate is in service yet");
            }
        }
    }

    fn retry_after(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        (*RETRY.start() * 2u32.saturating_pow(self.failures.min(8) - 1)).min(*RETRY.end())
    }

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

fn live_bundle(readings: Readings<'_>) -> Option<TrustBundle> {
    let readings = readings.into_iter().filter_map(|(_, reading)| reading);
    readings.filter_map(Reading::bundle).reduce(|all, bundle| all.merge(&bundle))
}
