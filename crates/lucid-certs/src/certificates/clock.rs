//! The wall clock and detection of clock steps.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

/// Interval at which the wall clock is compared with the monotonic clock.
const CHECK: Duration = Duration::from_secs(1);

/// Difference between both clocks that counts as a step. Daemons that slew the clock stay below it within a
/// minute.
const STEP: Duration = Duration::from_secs(5);

/// Wall clock, replaceable in tests.
#[derive(Clone)]
pub(super) struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) wall: SystemTime,
    monotonic: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self(Arc::new(SystemTime::now))
    }
}

impl Clock {
    pub(super) fn now(&self) -> Moment {
        Moment { wall: (self.0)(), monotonic: Instant::now() }
    }

    /// Completes when the wall clock has stepped relative to the monotonic clock since `since`: the clock was
    /// set, or the machine was suspended. Returns the new moment.
    pub(super) async fn stepped(&self, since: Moment) -> Moment {
        loop {
            let now = self.now();
            let expected = since.wall + now.monotonic.saturating_duration_since(since.monotonic);
            let off = now.wall.duration_since(expected).unwrap_or_else(|behind| behind.duration());
            if off >= STEP {
                return now;
            }
            tokio::time::sleep(CHECK).await;
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future,
        sync::atomic::{AtomicI64, Ordering},
    };

    use prometheus_client::{encoding::text::encode, registry::Registry};
    use tokio::{
        sync::{mpsc, watch},
        time::timeout,
    };

    use super::*;
    use crate::{
        CertificateAuthority, Certificates, ServingNames,
        certificates::run::Run,
        source::{CertificateSource, ObservedTrust, Offer, SourceError, Trust},
    };

    /// Shorter than the regular reconcile interval of one minute.
    const TIMEOUT: Duration = Duration::from_secs(20);
    const DAYS: i64 = 24 * 3600;

    /// Issues a new certificate on each call, once `may_issue` is true.
    struct Issuing {
        names: ServingNames,
        may_issue: watch::Receiver<bool>,
        requests: mpsc::UnboundedSender<SystemTime>,
    }

    impl CertificateSource for Issuing {
        fn name(&self) -> &'static str {
            "issuing"
        }

        async fn offer(&mut self, _: &ObservedTrust, now: SystemTime) -> Result<Offer, SourceError> {
            self.requests.send(now).unwrap();
            self.may_issue.wait_for(|may| *may).await.unwrap();
            let authority = CertificateAuthority::generate(&self.names, now).unwrap();
            let certificate = authority.issue(&self.names, now).unwrap();
            Ok(Offer::new(certificate, Trust::External))
        }

        async fn changed(&mut self) {
            future::pending().await
        }
    }

    async fn step(seconds: i64) {
        let names = ServingNames::for_services("lucid-system", &["lucid-operator"]).unwrap();
        let mut registry = Registry::default();
        let certificates = Certificates::new(names.clone()).with_metrics(&mut registry);
        let mut ready = certificates.ready();
        let metric = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text.lines().find_map(|line| line.strip_prefix("certificate_ready ").map(str::to_owned))
        };
        let offset = Arc::new(AtomicI64::new(0));
        let (issue, may_issue) = watch::channel(true);
        let (requests, mut received) = mpsc::unbounded_channel();
        let mut run = Run::new(certificates, Issuing { names, may_issue, requests });
        run.clock = Clock(Arc::new({
            let offset = Arc::clone(&offset);
            move || {
                let seconds = offset.load(Ordering::Relaxed);
                let by = Duration::from_secs(seconds.unsigned_abs());
                if seconds < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
            }
        }));
        let task = tokio::spawn(async move { run.forever().await });
        timeout(TIMEOUT, ready.wait_for(|ready| *ready)).await.expect("ready at first").unwrap();
        assert_eq!(metric().as_deref(), Some("1"));
        assert!(received.recv().await.is_some());

        issue.send_replace(false);
        offset.store(seconds, Ordering::Relaxed);
        timeout(TIMEOUT, ready.wait_for(|ready| !*ready)).await.expect("not ready").unwrap();
        assert_eq!(metric().as_deref(), Some("0"));
        timeout(TIMEOUT, received.recv()).await.expect("the source is called again").unwrap();
        issue.send_replace(true);
        timeout(TIMEOUT, ready.wait_for(|ready| *ready)).await.expect("ready again").unwrap();
        task.abort();
    }

    #[tokio::test]
    async fn a_clock_past_the_validity_ends_readiness_until_renewal() {
        tokio::join!(step(8 * DAYS), step(-DAYS));
    }
}
