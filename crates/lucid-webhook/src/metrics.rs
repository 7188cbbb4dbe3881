//! What the webhooks did, as Prometheus metrics.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    Allowed,
    Patched,
    Denied,
    Errored,
    Panicked,
    TimedOut,
    Shed,
    BadRequest,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    webhook: String,
    operation: &'static str,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabels {
    webhook: String,
}

/// Seconds; from below a cached answer to the longest timeout the API server knows.
const BUCKETS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Counts requests by webhook, operation and outcome.
///
/// Registered are `admission_requests_total`, `admission_request_duration_seconds` and
/// `admission_requests_in_flight`. Labels are bounded: webhooks are the registered paths, outcomes and operations are
/// fixed sets.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<WebhookLabels, Histogram>,
    in_flight: Family<WebhookLabels, Gauge>,
}

impl Metrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("admission");
        registry.register(
            "requests",
            "Admission requests by webhook, operation and outcome",
            metrics.requests.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "Time from the request's head to the answer",
            metrics.durations.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Admission requests being answered",
            metrics.in_flight.clone(),
        );
        metrics
    }

    pub(crate) fn observe(&self, webhook: &str, operation: &'static str, outcome: Outcome, took: Duration) {
        let webhook = webhook.to_owned();
        self.durations.get_or_create(&WebhookLabels { webhook: webhook.clone() }).observe(took.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { webhook, operation, outcome }).inc();
    }

    pub(crate) fn in_flight(&self, webhook: &Arc<str>) -> InFlight {
        let gauge = self.in_flight.get_or_create_owned(&WebhookLabels { webhook: webhook.to_string() });
        gauge.inc();
        InFlight(gauge)
    }
}

/// One request being answered.
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
