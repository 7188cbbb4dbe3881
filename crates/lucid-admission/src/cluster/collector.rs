//! Metric of the ConfigMaps in Lucid's namespace.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::ClusterConfiguration;

impl ClusterConfiguration {
    /// Registers `configuration_valid`: 1 for each ConfigMap whose content is valid or that does not exist, 0 while its
    /// last valid content stays in use.
    pub fn register_metrics(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl Collector for ClusterConfiguration {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Whether the content of a ConfigMap is valid";
        let mut family = encoder.encode_descriptor("configuration_valid", help, None, MetricType::Gauge)?;
        for (name, is_valid) in self.valid_config_maps() {
            ConstGauge::new(i64::from(is_valid)).encode(family.encode_family(&[("config_map", name)])?)?;
        }
        Ok(())
    }
}
