//! Prometheus metrics of webhooks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::response::{AdmissionResponse, Cut};
use crate::review::Operation;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Allowed,
    Patched,
    Denied,
    Skipped,
    Converted,
    Errored,
    Panicked,
    TimedOut,
    Cancelled,
    Shed,
    BadRequest,
}

impl Outcome {
    const ADMISSION: &[Self] = &[
        Self::Allowed,
        Self::Patched,
        Self::Denied,
        Self::Skipped,
        Self::Errored,
        Self::Panicked,
        Self::TimedOut,
        Self::Cancelled,
    ];
    const CONVERSION: &[Self] = &[Self::Converted, Self::Errored, Self::Panicked, Self::TimedOut];
    /// Outcomes of rejected calls, whose operation is unknown.
    const REJECTED: &[Self] = &[Self::Shed, Self::BadRequest];

    pub(crate) const fn of(response: &AdmissionResponse) -> Self {
        match response.outcome {
            None | Some(Self::Skipped) if response.denial.is_some() => Self::Denied,
            Some(outcome) => outcome,
            None if response.patch.is_some() => Self::Patched,
            None => Self::Allowed,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Denied => "denied",
            Self::Skipped => "skipped",
            Self::Converted => "converted",
            Self::Errored => "errored",
            Self::Panicked => "panicked",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Shed => "shed",
            Self::BadRequest => "bad_request",
        }
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.as_str())
    }
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

/// Upper bounds in seconds, from below a cached response to the longest timeout of the API server.
const BUCKETS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Metrics of a router: see [`Router::with_metrics`](crate::Router::with_metrics).
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<WebhookLabels, Histogram>,
    in_flight: Family<WebhookLabels, Gauge>,
    cut: Family<CutLabels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CutLabels {
    webhook: String,
    what: &'static str,
}

impl Metrics {
    #[must_use]
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Family::default(),
            cut: Family::default(),
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
        registry.register(
            "cut",
            "Warnings and audit annotations that had to be truncated",
            metrics.cut.clone(),
        );
        metrics
    }

    /// Returns the metrics of one webhook and creates its series at 0: an alert on the first panic needs the counter to
    /// exist before.
    #[must_use]
    pub(crate) fn webhook(&self, name: &str) -> WebhookMetrics {
        let operations = [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
        self.series(name, &operations.map(Operation::as_str), Outcome::ADMISSION)
    }

    pub(crate) fn conversion(&self, name: &str) -> WebhookMetrics {
        self.series(name, &[CONVERT], Outcome::CONVERSION)
    }

    fn series(
        &self,
        name: &str,
        operations: &[&'static str],
        outcomes: &'static [Outcome],
    ) -> WebhookMetrics {
        let of_operations = operations.iter().flat_map(|operation| outcomes.iter().map(|o| (*operation, *o)));
        let rejected = Outcome::REJECTED.iter().map(|outcome| ("", *outcome));
        let counter = |(operation, outcome)| {
            let labels = RequestLabels { webhook: name.to_owned(), operation, outcome };
            ((operation, outcome), self.requests.get_or_create_owned(&labels))
        };
        let cut = |what| self.cut.get_or_create_owned(&CutLabels { webhook: name.to_owned(), what });
        let labels = WebhookLabels { webhook: name.to_owned() };
        WebhookMetrics(Arc::new(Series {
            requests: of_operations.chain(rejected).map(counter).collect(),
            duration: self.durations.get_or_create_owned(&labels),
            in_flight: self.in_flight.get_or_create_owned(&labels),
            warnings_cut: cut("warning"),
            annotations_cut: cut("audit_annotation"),
        }))
    }
}

/// Value of the label `operation` for conversions.
pub(crate) const CONVERT: &str = "CONVERT";

#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics(Arc<Series>);

#[derive(Debug)]
struct Series {
    requests: BTreeMap<(&'static str, Outcome), Counter>,
    duration: Histogram,
    in_flight: Gauge,
    warnings_cut: Counter,
    annotations_cut: Counter,
}

impl WebhookMetrics {
    pub(crate) fn observe(&self, operation: &'static str, outcome: Outcome, took: Duration) {
        self.0.duration.observe(took.as_secs_f64());
        if let Some(counter) = self.0.requests.get(&(operation, outcome)) {
            counter.inc();
        }
    }

    pub(crate) fn cut(&self, cut: Cut) {
        self.0.warnings_cut.inc_by(cut.warnings);
        self.0.annotations_cut.inc_by(cut.audit_annotations);
    }

    pub(crate) fn in_flight(&self) -> InFlight {
        self.0.in_flight.inc();
        InFlight(self.0.in_flight.clone())
    }
}

pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
