//! Prometheus metrics of injection.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::notice::{FailureReason, Notice};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Injected,
    Unchanged,
    NotRequested,
    Skipped(&'static str),
    Refused(&'static str),
    Failed(FailureReason),
}

impl Outcome {
    fn labels(self) -> InjectionLabels {
        let (outcome, reason) = match self {
            Self::Injected => ("injected", ""),
            Self::Unchanged => ("unchanged", ""),
            Self::NotRequested => ("not_requested", ""),
            Self::Skipped(reason) => ("skipped", reason),
            Self::Refused(reason) => ("refused", reason),
            Self::Failed(reason) => ("failed", reason.as_str()),
        };
        InjectionLabels { outcome, reason }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventOutcome {
    Sent,
    /// The queue was full, or the pod had too many.
    Dropped,
    /// The API server rejected it or did not respond.
    Failed,
}

impl EventOutcome {
    const ALL: [Self; 3] = [Self::Sent, Self::Dropped, Self::Failed];

    const fn labels(self) -> EventLabels {
        EventLabels {
            outcome: match self {
                Self::Sent => "sent",
                Self::Dropped => "dropped",
                Self::Failed => "failed",
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InjectionLabels {
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WarningLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    outcome: &'static str,
}

/// Bucket bounds in seconds. An ordinary pod takes less than the second one.
const BUCKETS: [f64; 14] =
    [1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.5];

/// Metrics of injection. Cheap to clone.
///
/// | metric | labels | |
/// |---|---|---|
/// | `injections_total` | outcome, reason | pods by outcome, including dry runs and reinvocations |
/// | `injection_warnings_total` | reason | warnings, including those of pods without a chain |
/// | `injection_planning_seconds` | | time from parsing a pod to its patch |
/// | `injection_events_total` | outcome | events about pods |
///
/// Outcomes of pods are `injected`, `unchanged`, `not_requested`, `skipped`, `refused` and `failed`. Outcomes of events
/// are `sent`, `dropped` and `failed`. Reasons are from fixed sets: no label contains data of a pod.
#[derive(Clone, Debug)]
pub struct InjectionMetrics {
    injections: Family<InjectionLabels, Counter>,
    warnings: Family<WarningLabels, Counter>,
    planning: Histogram,
    events: Family<EventLabels, Counter>,
}

impl InjectionMetrics {
    /// Registers the metrics. Series used in alerts start at 0.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            injections: Family::default(),
            warnings: Family::default(),
            planning: Histogram::new(BUCKETS),
            events: Family::default(),
        };
        registry.register("injections", "Pods by injection outcome", metrics.injections.clone());
        let registry = registry.sub_registry_with_prefix("injection");
        registry.register("warnings", "Warnings about pods", metrics.warnings.clone());
        registry.register_with_unit(
            "planning",
            "Time from the pod's JSON to its patch",
            Unit::Seconds,
            metrics.planning.clone(),
        );
        registry.register("events", "Events about pods", metrics.events.clone());
        let failures = FailureReason::ALL.map(Outcome::Failed);
        for outcome in
            [Outcome::Injected, Outcome::Unchanged, Outcome::NotRequested].into_iter().chain(failures)
        {
            drop(metrics.injections.get_or_create(&outcome.labels()));
        }
        for outcome in EventOutcome::ALL {
            drop(metrics.events.get_or_create(&outcome.labels()));
        }
        metrics
    }

    pub(crate) fn count(&self, outcome: Outcome, notices: &[Notice]) {
        self.injections.get_or_create(&outcome.labels()).inc();
        for Notice { reason, .. } in notices {
            self.warnings.get_or_create(&WarningLabels { reason }).inc();
        }
    }

    pub(crate) fn planned(&self, time: Duration) {
        self.planning.observe(time.as_secs_f64());
    }

    pub(crate) fn events(&self, outcome: EventOutcome, events: u64) {
        self.events.get_or_create(&outcome.labels()).inc_by(events);
    }
}
