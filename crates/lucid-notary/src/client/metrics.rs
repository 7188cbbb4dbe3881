//! Prometheus metrics of the client.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::answer::Answer;
use super::error::VerifierError;
use crate::verdict::{CheckedVerdict, NotaryVerdict};

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
/// | `verifier_file_reloads_total` | file, result | reloads of the files `token`, `tls`, `allowlist` and `signatures`: `ok`, or `error` if the previous content stays in use |
///
/// Verdicts are `notarized`, `not_notarized` and `unknown`; provenances are those of
/// [`Provenance::name`](crate::Provenance::name). All label values are fixed sets.
///
/// Cheap to clone; clones share their counts. The [`Default`] value is not registered anywhere.
#[derive(Clone, Debug, Default)]
pub struct ClientMetrics {
    checks: Labelled<2, Counter>,
    pub(super) allowlisted: Counter,
    pub(super) allowlist_entries: Gauge,
    cache_lookups: Labelled<1, Counter>,
    pub(super) coalesced: Counter,
    pub(super) deadlines_exceeded: Counter,
    pub(super) retries: Counter,
    breaker_state: Labelled<1, Gauge>,
    pub(super) breaker_rejected: Counter,
    waiting: Gauge,
    in_flight: Gauge,
    requests: Labelled<1, Counter>,
    durations: Durations,
    file_reloads: Labelled<2, Counter>,
}

type Labelled<const N: usize, M> = Family<[(&'static str, &'static str); N], M>;

#[derive(Clone, Debug)]
struct Durations(Histogram);

impl Default for Durations {
    fn default() -> Self {
        // Upper bounds in seconds.
        Self(Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0]))
    }
}

impl ClientMetrics {
    /// Registers the metrics. Series that alerts may refer to start at 0.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.initialize();
        let registry = registry.sub_registry_with_prefix("verifier");
        let m = metrics.clone();
        registry.register("checks", "Digests checked", m.checks);
        registry.register("allowlisted", "Digests decided by the allowlist", m.allowlisted);
        registry.register("allowlist_entries", "Digests on the allowlist", m.allowlist_entries);
        registry.register("cache_lookups", "Cache hits and misses", m.cache_lookups);
        registry.register("coalesced", "Checks that shared the request of another", m.coalesced);
        registry.register(
            "deadlines_exceeded",
            "Requests that exceeded their deadline",
            m.deadlines_exceeded,
        );
        registry.register("retries", "Retries", m.retries);
        registry.register("breaker_state", "1 for the current state of the circuit breaker", m.breaker_state);
        registry.register(
            "breaker_rejected",
            "Requests rejected by the open circuit breaker",
            m.breaker_rejected,
        );
        registry.register("requests_waiting", "Requests waiting at the concurrency limit", m.waiting);
        registry.register("requests_in_flight", "Requests in flight, retries included", m.in_flight);
        registry.register("requests", "HTTP requests by outcome", m.requests);
        registry.register_with_unit(
            "request_duration",
            "Duration of HTTP requests",
            Unit::Seconds,
            m.durations.0,
        );
        registry.register("file_reloads", "Reloads of files by result", m.file_reloads);
        metrics
    }

    fn initialize(&self) {
        for verdict in ["notarized", "not_notarized", "unknown"] {
            drop(self.checks.get_or_create(&[("verdict", verdict), ("provenance", "verifier")]));
        }
        for outcome in OUTCOMES {
            drop(self.requests.get_or_create(&[("outcome", outcome)]));
        }
        for file in ["token", "tls", "allowlist", "signatures"] {
            for result in ["ok", "error"] {
                drop(self.file_reloads.get_or_create(&[("file", file), ("result", result)]));
            }
        }
        self.set_breaker_state("closed");
    }

    pub(super) fn checked(&self, checked: &CheckedVerdict) {
        let labels = [("verdict", name(&checked.verdict)), ("provenance", checked.provenance.name())];
        self.checks.get_or_create(&labels).inc();
    }

    pub(super) fn looked_up(&self, found: Option<&CheckedVerdict>) {
        let result = found.map_or("miss", |checked| name(&checked.verdict));
        self.cache_lookups.get_or_create(&[("result", result)]).inc();
    }

    pub(super) fn set_breaker_state(&self, current: &str) {
        for state in ["closed", "open", "half_open"] {
            self.breaker_state.get_or_create(&[("state", state)]).set(i64::from(state == current));
        }
    }

    pub(super) fn waiting(&self) -> Counted {
        Counted::new(&self.waiting)
    }

    pub(super) fn in_flight(&self) -> Counted {
        Counted::new(&self.in_flight)
    }

    pub(super) fn requested(&self, answer: Result<&Answer, &VerifierError>, took: Duration) {
        let outcome = match answer {
            Ok(Answer::Notarized) => "notarized",
            Ok(Answer::NotNotarized | Answer::NotSigned { .. }) => "not_notarized",
            Err(error) => error.name(),
        };
        self.requests.get_or_create(&[("outcome", outcome)]).inc();
        self.durations.0.observe(took.as_secs_f64());
    }

    pub(super) fn on_change(&self, file: &'static str) -> impl Fn(bool) + Send + Sync + use<> {
        let reloads = self.file_reloads.clone();
        move |is_ok| {
            let result = if is_ok { "ok" } else { "error" };
            reloads.get_or_create(&[("file", file), ("result", result)]).inc();
        }
    }
}

const OUTCOMES: [&str; 8] =
    ["notarized", "not_notarized", "timeout", "transport", "status", "too_long", "malformed", "other_digest"];

fn name(verdict: &NotaryVerdict) -> &'static str {
    match verdict {
        NotaryVerdict::Notarized => "notarized",
        NotaryVerdict::NotNotarized | NotaryVerdict::NotSigned { .. } => "not_notarized",
        NotaryVerdict::Unknown { .. } => "unknown",
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
