//! Metrics of the injector.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::object::Kind;

#[derive(Debug, Clone, Default)]
pub(super) struct InjectorMetrics {
    writes: Family<Vec<(&'static str, String)>, Counter>,
    refused: Family<Vec<(&'static str, String)>, Gauge>,
    paused: Gauge,
}

impl InjectorMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
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
