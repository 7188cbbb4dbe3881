//! Metrics of the injector.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::object::Kind;

/// Metrics of an [`Injector`](super::Injector). Cheap to clone; clones share their values.
///
/// - `cainjector_writes_total{kind,result}`: writes by result: `written`, `overtaken` (another client changed
///   the object at the same time) or `failed`
/// - `cainjector_refused{kind}`: objects with an annotation that currently cannot be honored
/// - `cainjector_paused`: 1 while writes are paused because of a conflicting injector
#[derive(Debug, Clone, Default)]
pub struct InjectorMetrics {
    writes: Family<Vec<(&'static str, String)>, Counter>,
    refused: Family<Vec<(&'static str, String)>, Gauge>,
    paused: Gauge,
}

impl InjectorMetrics {
    /// Registers the metrics.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        for kind in Kind::ALL {
            metrics.refused(kind, 0);
            for result in ["written", "overtaken", "failed"] {
                drop(metrics.writes.get_or_create(&write_labels(kind, result)));
            }
        }
        registry.register("cainjector_writes", "Objects that were written", metrics.writes.clone());
        let help = "Objects with an annotation that currently cannot be honored";
        registry.register("cainjector_refused", help, metrics.refused.clone());
        let help = "1 while writes are paused because of a conflicting injector";
        registry.register("cainjector_paused", help, metrics.paused.clone());
        metrics
    }

    pub(super) fn wrote(&self, kind: Kind, result: &str) {
        self.writes.get_or_create(&write_labels(kind, result)).inc();
    }

    pub(super) fn refused(&self, kind: Kind, change: i64) {
        self.refused.get_or_create(&vec![("kind", kind.to_string())]).inc_by(change);
    }

    pub(super) fn paused(&self, paused: bool) {
        self.paused.set(paused.into());
    }
}

fn write_labels(kind: Kind, result: &str) -> Vec<(&'static str, String)> {
    vec![("kind", kind.to_string()), ("result", result.to_owned())]
}
