//! The certificate in service.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::serving::ServingCertificate;

/// A [`ResolvesServerCert`] with a certificate that can be swapped at runtime. Ignores the server name that
/// the client requests.
///
/// Swaps are atomic and lock-free. They affect new handshakes; established connections are not closed.
///
/// Without a certificate, handshakes fail with the alert `access_denied`, and a warning is logged at most
/// every ten seconds.
pub struct ServingCertificateResolver {
    certified: ArcSwapOption<CertifiedKey>,
    refused: Refused,
}

impl ServingCertificateResolver {
    /// Creates a resolver that serves `certificate`.
    #[must_use]
    pub fn new(certificate: &ServingCertificate) -> Self {
        let resolver = Self::empty();
        resolver.swap(certificate);
        resolver
    }

    /// Creates a resolver without a certificate.
    #[must_use]
    pub fn empty() -> Self {
        Self { certified: ArcSwapOption::empty(), refused: Refused::new() }
    }

    /// Serves `certificate` in all new handshakes.
    pub fn swap(&self, certificate: &ServingCertificate) {
        self.certified.store(Some(Arc::clone(&certificate.certified)));
    }
}

impl ResolvesServerCert for ServingCertificateResolver {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certified = self.certified.load_full();
        if certified.is_none() {
            self.refused.log();
        }
        certified
    }
}

impl fmt::Debug for ServingCertificateResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificateResolver").finish_non_exhaustive()
    }
}

/// Counter of handshakes without a certificate.
struct Refused {
    since: Instant,
    unreported: AtomicU64,
    /// Milliseconds since `since`.
    next_report: AtomicU64,
}

impl Refused {
    const EACH: Duration = Duration::from_secs(10);

    fn new() -> Self {
        Self { since: Instant::now(), unreported: AtomicU64::new(0), next_report: AtomicU64::new(0) }
    }

    fn log(&self) {
        if let Some(handshakes) = self.report(self.since.elapsed()) {
            tracing::warn!(handshakes, "handshakes rejected: no certificate is in service yet");
        }
    }

    /// Counts a handshake. Returns the number of unreported ones if a report is due.
    fn report(&self, elapsed: Duration) -> Option<u64> {
        self.unreported.fetch_add(1, Ordering::Relaxed);
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let due = self.next_report.load(Ordering::Relaxed);
        let next = millis(elapsed + Self::EACH);
        // Of concurrent callers, the one that sets the next report time reports.
        let reports = millis(elapsed) >= due
            && self.next_report.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        reports.then(|| self.unreported.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_logged_at_most_every_ten_seconds() {
        let refused = Refused::new();
        let seconds = [0, 1, 9, 10, 10, 19, 300];
        let reported = seconds.map(|seconds| refused.report(Duration::from_secs(seconds)));
        assert_eq!(reported, [Some(1), None, None, Some(3), None, None, Some(3)]);
    }
}
