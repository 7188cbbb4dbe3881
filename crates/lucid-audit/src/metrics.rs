//! Prometheus metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) records: Counter,
    pub(crate) commits: Counter,
    pub(crate) bytes: Counter,
    pub(crate) fsync: Histogram,
    pub(crate) size: Gauge,
    pub(crate) sealed_size: Gauge,
    pub(crate) cosigned_size: Gauge,
    failures: Family<FailureLabels, Counter>,
    state: Family<StateLabels, Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

const FAILURES: [&str; 11] =
    ["full", "write", "sync", "lost", "closed", "unfit", "late", "unavailable", "budget", "seal", "prune"];
const STATES: [&str; 6] = ["off", "ok", "failing", "unsealed", "unpruned", "unavailable"];

impl Default for Metrics {
    fn default() -> Self {
        Self {
            records: Counter::default(),
            commits: Counter::default(),
            bytes: Counter::default(),
            // 50 us to 1.6 s.
            fsync: Histogram::new(exponential_buckets(0.000_05, 2.0, 16)),
            size: Gauge::default(),
            sealed_size: Gauge::default(),
            cosigned_size: Gauge::default(),
            failures: Family::default(),
            state: Family::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.state("off");
        for kind in FAILURES {
            // Alerts on an increase need a zero to start from.
            drop(metrics.failures.get_or_create(&FailureLabels { kind }));
        }
        let audit = registry.sub_registry_with_prefix("audit");
        audit.register("records", "Records kept in the log", metrics.records.clone());
        audit.register("commits", "Groups in which records were written", metrics.commits.clone());
        audit.register("bytes", "Bytes of the kept lines", metrics.bytes.clone());
        audit.register("fsync_seconds", "Duration of flushing a group to disk", metrics.fsync.clone());
        audit.register("size", "Records in the log", metrics.size.clone());
        let help = "Records covered by the checkpoint";
        audit.register("sealed_size", help, metrics.sealed_size.clone());
        let help = "Records covered by a checkpoint that a witness has cosigned";
        audit.register("cosigned_size", help, metrics.cosigned_size.clone());
        let help = "Decisions missing from the log by reason, and failures to seal and prune";
        audit.register("failures", help, metrics.failures.clone());
        let help = "1 for the current state of the log, 0 for the others";
        audit.register("state", help, metrics.state.clone());
        metrics
    }

    pub(crate) fn failed(&self, kind: &'static str) {
        self.failures.get_or_create(&FailureLabels { kind }).inc();
    }

    pub(crate) fn state(&self, current: &'static str) {
        for state in STATES {
            self.state.get_or_create(&StateLabels { state }).set(i64::from(state == current));
        }
    }
}

pub(crate) fn gauge(size: u64) -> i64 {
    size.try_into().unwrap_or(i64::MAX)
}
