//! Prometheus metrics of the client.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::http::{Answer, VerifierError};
use crate::verdict::{CheckedVerdict, Verdict};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckLabels {
    verdict: &'static str,
    provenance: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookupLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    file: &'static str,
    result: &'static str,
}

/// Upper bounds in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Prometheus metrics of the client.
///
/// | metric | labels | description |
/// |---|---|---|
/// | `verifier_checks_total` | verdict, provenance | digests checked |
/// | `verifier_allowlisted_total` | | digests decided by the allowlist |
/// | `verifier_allowlist_entries` | | digests on the allowlist |
/// | `verifier_cache_lookups_total` | result | cache hits (`notarized`, `not_notarized`, `unknown`) and misses (`miss`) |
/// | `verifier_coalesced_total` | | checks that shared the request of another |
/// | `verifier_deadlines_exceeded_total` | | requests that exceeded their deadline, retries included |
/// | `verifier_retries_total` | | retries |
/// | `verifier_breaker_state` | state | 1 for the current state of the circuit breaker, 0 for the others: `closed`, `open`, `half_open` |
/// | `verifier_breaker_rejected_total` | | requests rejected by the open breaker |
/// | `verifier_requests_waiting` | | requests waiting at the concurrency limit |
/// | `verifier_requests_in_flight` | | requests in flight, retries included |
/// | `verifier_requests_total` | outcome | HTTP requests: `notarized`, `not_notarized`, `timeout`, `transport`, `status`, `too_long`, `malformed`, `other_digest` |
/// | `verifier_request_duration_seconds` | | duration of HTTP requests |
/// | `verifier_file_reloads_total` | file, result | reloads of the files `token`, `tls` and `allowlist`: `ok`, or `error` if the previous content stays in use |
///
/// Verdicts are `notarized`, `not_notarized` and `unknown`; provenances are those of
/// [`Provenance::name`](crate::Provenance::name). All label values are fixed sets.
///
/// Cheap to clone; clones share their counts. The [`Default`] value is not registered anywhere.
#[derive(Clone, Debug)]
pub struct Metrics {
    checks: Family<CheckLabels, Counter>,
    allowlisted: Counter,
    allowlist_entries: Gauge,
    lookups: Family<LookupLabels, Counter>,
    coalesced: Counter,
    deadlines_exceeded: Counter,
    retries: Counter,
    breaker: Family<StateLabels, Gauge>,
    breaker_rejected: Counter,
    waiting: Gauge,
    in_flight: Gauge,
    requests: Family<OutcomeLabels, Counter>,
    durations: Histogram,
    reloads: Family<ReloadLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            checks: Family::default(),
            allowlisted: Counter::default(),
            allowlist_entries: Gauge::default(),
            lookups: Family::default(),
            coalesced: Counter::default(),
            deadlines_exceeded: Counter::default(),
            retries: Counter::default(),
            breaker: Family::default(),
            breaker_rejected: Counter::default(),
            waiting: Gauge::default(),
            in_flight: Gauge::default(),
            requests: Family::default(),
            durations: Histogram::new(BUCKETS),
            reloads: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics. Series that alerts may refer to start at 0.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.initialize();
        let registry = registry.sub_registry_with_prefix("verifier");
        let m = &metrics;
        registry.register("checks", "Digests checked", m.checks.clone());
        registry.register("allowlisted", "Digests decided by the allowlist", m.allowlisted.clone());
        registry.register("allowlist_entries", "Digests on the allowlist", m.allowlist_entries.clone());
        registry.register("cache_lookups", "Cache hits and misses", m.lookups.clone());
        registry.register("coalesced", "Checks that shared the request of another", m.coalesced.clone());
        let exceeded = m.deadlines_exceeded.clone();
        registry.register("deadlines_exceeded", "Requests that exceeded their deadline", exceeded);
        registry.register("retries", "Retries", m.retries.clone());
        registry.register(
            "breaker_state",
            "1 for the current state of the circuit breaker",
            m.breaker.clone(),
        );
        let rejected = m.breaker_rejected.clone();
        registry.register("breaker_rejected", "Requests rejected by the open circuit breaker", rejected);
        registry.register("requests_waiting", "Requests waiting at the concurrency limit", m.waiting.clone());
        registry.register("requests_in_flight", "Requests in flight, retries included", m.in_flight.clone());
        registry.register("requests", "HTTP requests by outcome", m.requests.clone());
        let durations = m.durations.clone();
        registry.register_with_unit(
            "request_duration",
            "Duration of HTTP requests",
            Unit::Seconds,
            durations,
        );
        registry.register("file_reloads", "Reloads of files by result", m.reloads.clone());
        metrics
    }

    fn initialize(&self) {
        for verdict in ["notarized", "not_notarized", "unknown"] {
            drop(self.checks.get_or_create(&CheckLabels { verdict, provenance: "verifier" }));
        }
        for outcome in OUTCOMES {
            drop(self.requests.get_or_create(&OutcomeLabels { outcome }));
        }
        for file in ["token", "tls", "allowlist"] {
            for result in ["ok", "error"] {
                drop(self.reloads.get_or_create(&ReloadLabels { file, result }));
            }
        }
        self.breaker_state("closed");
    }

    pub(super) fn checked(&self, checked: &CheckedVerdict) {
        let (verdict, provenance) = (name(&checked.verdict), checked.provenance.name());
        self.checks.get_or_create(&CheckLabels { verdict, provenance }).inc();
    }

    pub(super) fn allowlisted(&self) {
        self.allowlisted.inc();
    }

    pub(super) fn allowlist_entries(&self, entries: usize) {
        self.allowlist_entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }

    pub(super) fn cache_lookup(&self, found: Option<&CheckedVerdict>) {
        let result = found.map_or("miss", |checked| name(&checked.verdict));
        self.lookups.get_or_create(&LookupLabels { result }).inc();
    }

    pub(super) fn coalesced(&self) {
        self.coalesced.inc();
    }

    pub(super) fn deadline_exceeded(&self) {
        self.deadlines_exceeded.inc();
    }

    pub(super) fn retried(&self) {
        self.retries.inc();
    }

    pub(super) fn breaker_state(&self, current: &str) {
        for state in ["closed", "open", "half_open"] {
            self.breaker.get_or_create(&StateLabels { state }).set(i64::from(state == current));
        }
    }

    pub(super) fn breaker_rejected(&self) {
        self.breaker_rejected.inc();
    }

    pub(super) fn waiting(&self) -> Counted {
        Counted::new(&self.waiting)
    }

    pub(super) fn in_flight(&self) -> Counted {
        Counted::new(&self.in_flight)
    }

    pub(super) fn requested(&self, answer: &Result<Answer, VerifierError>, took: Duration) {
        let outcome = match answer {
            Ok(Answer::Notarized) => "notarized",
            Ok(Answer::NotNotarized) => "not_notarized",
            Err(error) => error.name(),
        };
        self.requests.get_or_create(&OutcomeLabels { outcome }).inc();
        self.durations.observe(took.as_secs_f64());
    }

    /// Returns a callback that counts reloads of the file.
    pub(super) fn on_change(&self, file: &'static str) -> impl Fn(bool) + Send + Sync + use<> {
        let reloads = self.reloads.clone();
        move |is_ok| {
            let result = if is_ok { "ok" } else { "error" };
            reloads.get_or_create(&ReloadLabels { file, result }).inc();
        }
    }
}

const OUTCOMES: [&str; 8] =
    ["notarized", "not_notarized", "timeout", "transport", "status", "too_long", "malformed", "other_digest"];

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Notarized => "notarized",
        Verdict::NotNotarized => "not_notarized",
        Verdict::Unknown { .. } => "unknown",
    }
}

/// Increments a gauge until dropped.
pub(super) struct Counted(Gauge);

impl Counted {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
