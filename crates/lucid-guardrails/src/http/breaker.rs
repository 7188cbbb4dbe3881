//! Circuit breaker.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Options of the circuit breaker of [`Http`](crate::Http).
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct BreakerOptions {
    /// Consecutive outages that open the breaker: failed connections, timeouts and status 502, 503 or 504. Other errors may
    /// depend on the text, whose author must not be able to open the breaker. 0 disables it.
    failures: u32,
    /// Time for which requests are rejected. After it, one request per pause probes the service.
    #[serde(with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pause: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self { failures: 5, pause: Duration::from_secs(5) }
    }
}

/// Rejects requests after consecutive outages, except one probe per pause.
#[derive(Debug)]
pub(super) struct Breaker {
    options: BreakerOptions,
    circuit: Mutex<Circuit>,
}

#[derive(Debug)]
struct Circuit {
    failures: u32,
    /// Start of the pause.
    since: Instant,
}

impl Breaker {
    pub(super) fn new(options: BreakerOptions) -> Self {
        Self { options, circuit: Mutex::new(Circuit { failures: 0, since: Instant::now() }) }
    }

    /// Returns `false` if the request must not be sent.
    pub(super) fn admits(&self) -> bool {
        let mut circuit = self.lock();
        if self.options.failures == 0 || circuit.failures < self.options.failures {
            return true;
        }
        let is_probe = circuit.since.elapsed() >= self.options.pause;
        if is_probe {
            // A cancelled probe reports nothing: the next one follows a pause later.
            circuit.since = Instant::now();
        }
        is_probe
    }

    pub(super) fn report(&self, is_outage: bool) {
        let mut circuit = self.lock();
        *circuit = match is_outage {
            true => Circuit { failures: circuit.failures.saturating_add(1), since: Instant::now() },
            false => Circuit { failures: 0, since: circuit.since },
        };
    }

    fn lock(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_breaker_admits_one_probe_per_pause() {
        let pause = Duration::from_millis(20);
        let breaker = Breaker::new(BreakerOptions { failures: 1, pause });
        breaker.report(true);
        for _ in 0..3 {
            let next = || {
                let mut before = Instant::now();
                while !breaker.admits() {
                    before = Instant::now();
                }
                before
            };
            let probe = next();
            next();
            assert!(probe.elapsed() >= pause);
        }
    }
}
