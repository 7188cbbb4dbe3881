//! The certificate in service.

use std::{
    fmt, mem,
    sync::{Arc, Mutex},
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
/// every ten seconds. The default has no certificate.
#[derive(Default)]
pub struct ServingCertificateResolver {
    certified: ArcSwapOption<CertifiedKey>,
    refused: Mutex<Refused>,
}

impl ServingCertificateResolver {
    /// Serves `certificate` in all new handshakes.
    pub fn swap(&self, certificate: &ServingCertificate) {
        self.certified.store(Some(Arc::clone(&certificate.certified)));
    }
}

impl ResolvesServerCert for ServingCertificateResolver {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certified = self.certified.load_full();
        if certified.is_none()
            && let Some(handshakes) = self.refused.lock().ok().and_then(|mut it| it.report(Instant::now()))
        {
            tracing::warn!(handshakes, "handshakes rejected: no certificate is in service yet");
        }
        certified
    }
}

impl fmt::Debug for ServingCertificateResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServingCertificateResolver").finish_non_exhaustive()
    }
}

/// Interval of the warning about rejected handshakes.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Counter of handshakes without a certificate.
#[derive(Default)]
struct Refused {
    unreported: u64,
    next_report: Option<Instant>,
}

impl Refused {
    /// Counts a handshake. Returns the number of unreported ones if a report is due.
    fn report(&mut self, now: Instant) -> Option<u64> {
        self.unreported += 1;
        if self.next_report.is_some_and(|next| now < next) {
            return None;
        }
        self.next_report = Some(now + WARNING_INTERVAL);
        Some(mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_logged_at_most_every_ten_seconds() {
        let (mut refused, start) = (Refused::default(), Instant::now());
        let seconds = [0, 1, 9, 10, 10, 19, 300];
        let reported = seconds.map(|seconds| refused.report(start + Duration::from_secs(seconds)));
        assert_eq!(reported, [Some(1), None, None, Some(3), None, None, Some(3)]);
    }
}
