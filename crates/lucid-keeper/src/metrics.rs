//! Metrics of the keeper.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::RunningPods;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    action: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    actions: Family<ActionLabels, Counter>,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry, pods: &RunningPods) {
        let help = "Actions on running pods; outcome is done, waits or failed";
        registry.register("keeper_actions", help, self.actions.clone());
        registry.register_collector(Box::new(States(pods.clone())));
    }

    pub(crate) fn count(&self, action: &'static str, outcome: &'static str) {
        self.actions.get_or_create(&ActionLabels { action, outcome }).inc();
    }
}

#[derive(Debug)]
struct States(RunningPods);

impl Collector for States {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let help = "Running pods that request auditors, by namespace and state; only the leader knows them";
        let mut family = encoder.encode_descriptor("running_pods", help, None, MetricType::Gauge)?;
        for ((namespace, state), count) in self.0.counts() {
            // Prometheus adds `namespace`, that of this process.
            let labels = [("resource_namespace", namespace.as_str()), ("state", state.as_str())];
            ConstGauge::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
