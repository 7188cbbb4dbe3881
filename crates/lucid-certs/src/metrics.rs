//! Prometheus metrics.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::source::{Phase, Reason};

type Labels = Vec<(&'static str, String)>;

/// Metrics of a server's certificates; see [`Certificates::with_metrics`](crate::Certificates::with_metrics). The default
/// counts without being registered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    expiry: Family<Labels, Gauge>,
    phase: Family<Labels, Gauge>,
    reloads: Family<Labels, Counter>,
    last_success: Family<Labels, Gauge>,
    ready: Gauge,
    publications: Family<Labels, Counter>,
    drift_healed: Family<Labels, Counter>,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        metrics.phase(Phase::Stable);
        let certificates = registry.sub_registry_with_prefix("certificate");
        let help = "Expiry of a certificate in Unix seconds";
        certificates.register("expiry_timestamp_seconds", help, metrics.expiry.clone());
        let help = "1 for the current phase of the CA rotation, 0 for the others";
        certificates.register("rotation_phase", help, metrics.phase.clone());
        certificates.register("reloads", "Requests to a source, by result", metrics.reloads.clone());
        let help = "Time of the last valid certificate from a source in Unix seconds, initially 0";
        certificates.register("last_success_timestamp_seconds", help, metrics.last_success.clone());
        let help = "1 while callers accept the certificate in service, 0 otherwise";
        certificates.register("ready", help, metrics.ready.clone());
        let bundles = registry.sub_registry_with_prefix("trust_bundle");
        let help = "Reconciliations of the trust bundle in a target, by result";
        bundles.register("publications", help, metrics.publications.clone());
        let help = "External changes of the trust bundle that were reverted";
        bundles.register("drift_healed", help, metrics.drift_healed.clone());
        metrics
    }

    /// Initializes the counters of a source, by [name](crate::source::CertificateSource::name), to 0, so that
    /// alerts see the first increment.
    pub(crate) fn add_source(&self, name: &str) {
        let rejections = Reason::ALL.into_iter().map(Reload::Refused);
        for reload in [Reload::Swapped, Reload::Unchanged].into_iter().chain(rejections) {
            drop(self.reloads.get_or_create(&reload.labels(name)));
        }
        drop(self.last_success.get_or_create(&source_labels(name)));
    }

    pub(crate) fn add_target(&self, name: &str) {
        for result in ["written", "unchanged", "conflict", "error"] {
            drop(self.publications.get_or_create(&publication_labels(name, result)));
        }
        drop(self.drift_healed.get_or_create(&target_labels(name)));
    }

    pub(crate) fn expiry(&self, source: &str, certificate: CertificateKind, not_after: Option<SystemTime>) {
        let certificate = match certificate {
            CertificateKind::Ca => "ca",
            CertificateKind::NextCa => "next_ca",
            CertificateKind::Leaf => "leaf",
            CertificateKind::Source => "source",
        };
        let labels = vec![("certificate", certificate.to_owned()), ("source", source.to_owned())];
        match not_after {
            Some(not_after) => {
                self.expiry.get_or_create(&labels).set(unix_seconds(not_after));
            }
            None => {
                self.expiry.remove(&labels);
            }
        }
    }

    pub(crate) fn reload(&self, source: &str, reload: Reload) {
        self.reloads.get_or_create(&reload.labels(source)).inc();
    }

    pub(crate) fn success(&self, source: &str, now: SystemTime) {
        self.last_success.get_or_create(&source_labels(source)).set(unix_seconds(now));
    }

    /// Counts a reconciliation of a target. `result` is `written`, `unchanged`, `conflict` (another client wrote at the
    /// same time) or `error`.
    pub(crate) fn publication(&self, target: &str, result: &str) {
        self.publications.get_or_create(&publication_labels(target, result)).inc();
    }

    pub(crate) fn drift_healed(&self, target: &str) {
        self.drift_healed.get_or_create(&target_labels(target)).inc();
    }

    pub(crate) fn phase(&self, phase: Phase) {
        for each in Phase::ALL {
            let labels = vec![("phase", each.as_str().to_owned())];
            self.phase.get_or_create(&labels).set(i64::from(each == phase));
        }
    }

    pub(crate) fn ready(&self, ready: bool) {
        self.ready.set(i64::from(ready));
    }
}

fn source_labels(source: &str) -> Labels {
    vec![("source", source.to_owned())]
}

fn publication_labels(target: &str, result: &str) -> Labels {
    vec![("target", target.to_owned()), ("result", result.to_owned())]
}

fn target_labels(target: &str) -> Labels {
    vec![("target", target.to_owned())]
}

fn unix_seconds(time: SystemTime) -> i64 {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum CertificateKind {
    Ca,
    NextCa,
    Leaf,
    Source,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Reload {
    Swapped,
    Unchanged,
    /// The offer was rejected, and the certificate in service was kept.
    Refused(Reason),
}

impl Reload {
    fn labels(self, source: &str) -> Labels {
        let (result, reason) = match self {
            Self::Swapped => ("swapped", ""),
            Self::Unchanged => ("unchanged", ""),
            Self::Refused(reason) => ("refused", reason.as_str()),
        };
        vec![("source", source.to_owned()), ("result", result.to_owned()), ("reason", reason.to_owned())]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use prometheus_client::encoding::text::encode;
    use serde_yaml::Value;

    use super::*;

    const KINDS: [CertificateKind; 4] =
        [CertificateKind::Ca, CertificateKind::NextCa, CertificateKind::Leaf, CertificateKind::Source];

    fn scrape(registry: &Registry, begin: &str) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text.lines().filter(|line| line.starts_with(begin)).map(str::to_owned).collect()
    }

    fn value(registry: &Registry, series: &str) -> Option<i64> {
        let lines = scrape(registry, &format!("{series} "));
        lines.first().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
    }

    #[test]
    fn series_with_known_labels_start_at_0() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.add_source("files");
        metrics.add_target("ConfigMap/default/trust");

        assert_eq!(value(&registry, "certificate_ready"), Some(0));
        assert_eq!(scrape(&registry, "certificate_rotation_phase{").len(), 8);
        assert_eq!(value(&registry, r#"certificate_rotation_phase{phase="stable"}"#), Some(1));
        let reloads = scrape(&registry, "certificate_reloads_total{");
        assert!(reloads.len() == 10 && reloads.iter().all(|line| line.ends_with(" 0")), "{reloads:?}");
        for reload in [r#"result="swapped",reason="""#, r#"result="refused",reason="not_yet_valid""#] {
            let series = format!(r#"certificate_reloads_total{{source="files",{reload}}}"#);
            assert_eq!(value(&registry, &series), Some(0), "{series} in {reloads:?}");
        }
        let success = r#"certificate_last_success_timestamp_seconds{source="files"}"#;
        assert_eq!(value(&registry, success), Some(0));
        for result in ["written", "unchanged", "conflict", "error"] {
            let labels = format!(r#"{{target="ConfigMap/default/trust",result="{result}"}}"#);
            assert_eq!(value(&registry, &format!("trust_bundle_publications_total{labels}")), Some(0));
        }
        let healed = r#"trust_bundle_drift_healed_total{target="ConfigMap/default/trust"}"#;
        assert_eq!(value(&registry, healed), Some(0));
        assert!(scrape(&registry, "certificate_expiry").is_empty(), "there is no certificate yet");

        metrics.expiry("files", CertificateKind::Source, Some(SystemTime::now()));
        let help = scrape(&registry, "# HELP ");
        assert_eq!(help.len(), 7, "{help:?}");
    }

    #[test]
    fn one_phase_is_1_at_a_time() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        for phase in [Phase::Publish, Phase::Drain, Phase::Emergency, Phase::Stable] {
            metrics.phase(phase);
            let all = scrape(&registry, "certificate_rotation_phase{");
            let ones: Vec<_> = all.into_iter().filter(|line| line.ends_with(" 1")).collect();
            assert_eq!(ones, [format!(r#"certificate_rotation_phase{{phase="{}"}} 1"#, phase.as_str())]);
        }
    }

    #[test]
    fn expiry_is_in_unix_seconds_and_removed_with_the_certificate() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let series = |certificate: &str| {
            format!(
                r#"certificate_expiry_timestamp_seconds{{certificate="{certificate}",source="self-managed"}}"#
            )
        };
        for (kind, label) in KINDS.into_iter().zip(["ca", "next_ca", "leaf", "source"]) {
            metrics.expiry("self-managed", kind, Some(end));
            assert_eq!(value(&registry, &series(label)), Some(1_800_000_000));
        }
        metrics.expiry("self-managed", CertificateKind::NextCa, None);
        assert_eq!(value(&registry, &series("next_ca")), None);
        assert_eq!(value(&registry, &series("ca")), Some(1_800_000_000));
    }

    #[test]
    fn events_are_counted_by_label() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.add_source("files");
        let target = "APIService/v1.example.com";
        for reload in [Reload::Swapped, Reload::Refused(Reason::Mismatch), Reload::Refused(Reason::Mismatch)]
        {
            metrics.reload("files", reload);
        }
        metrics.success("files", SystemTime::UNIX_EPOCH + Duration::from_secs(7));
        metrics.publication(target, "conflict");
        metrics.drift_healed(target);
        metrics.ready(true);

        let expected = [
            (r#"certificate_reloads_total{source="files",result="swapped",reason=""}"#, 1),
            (r#"certificate_reloads_total{source="files",result="refused",reason="mismatch"}"#, 2),
            (r#"certificate_reloads_total{source="files",result="refused",reason="expired"}"#, 0),
            (r#"certificate_last_success_timestamp_seconds{source="files"}"#, 7),
            (r#"trust_bundle_publications_total{target="APIService/v1.example.com",result="conflict"}"#, 1),
            (r#"trust_bundle_drift_healed_total{target="APIService/v1.example.com"}"#, 1),
            ("certificate_ready", 1),
        ];
        for (series, count) in expected {
            assert_eq!(value(&registry, series), Some(count), "{series}");
        }
        metrics.ready(false);
        assert_eq!(value(&registry, "certificate_ready"), Some(0));
    }

    /// Returns the metrics of an expression with each matcher, such as `phase="stable"`; the matcher is empty for the
    /// metric itself.
    fn asked(expression: &str) -> Vec<(&str, String)> {
        let mut found = Vec::new();
        for (at, _) in expression.match_indices("lucid_") {
            let rest = &expression[at..];
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
            let (name, rest) = rest.split_at(end);
            found.push((name, String::new()));
            let matchers = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            for matcher in matchers.into_iter().flat_map(|(matchers, _)| matchers.split(',')) {
                let (label, values) = matcher.split_once('=').unwrap();
                let values = values.trim_start_matches('~').trim_matches('"').split('|');
                found.extend(values.map(|value| (name, format!("{label}=\"{value}\""))));
            }
        }
        found
    }

    #[test]
    fn every_metric_and_label_of_the_alerts_is_shown() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus-rule.yaml");
        // The published crate is tested without them.
        let Ok(rules) = std::fs::read_to_string(path) else { return };
        let rules: Value = serde_yaml::from_str(&rules).unwrap();
        let mut registry = Registry::with_prefix("lucid");
        let metrics = Metrics::new(&mut registry);
        metrics.add_source("files");
        for kind in KINDS {
            metrics.expiry("files", kind, Some(SystemTime::now()));
        }
        metrics.add_target("MutatingWebhookConfiguration/lucid-operator");
        let mut shown = String::new();
        encode(&mut shown, &registry).unwrap();
        let mut seen = BTreeSet::new();
        let mut groups = rules["spec"]["groups"].as_sequence().unwrap().iter();
        let group = groups.find(|group| group["name"] == "certificates").unwrap();
        for rule in group["rules"].as_sequence().unwrap() {
            let alert = rule["alert"].as_str().unwrap();
            let asked = asked(rule["expr"].as_str().unwrap());
            assert!(!asked.is_empty() || alert == "LucidOperatorCertNotReady", "{alert}");
            for (name, matcher) in asked {
                let shows = |line: &str| {
                    let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']));
                    rest.is_some_and(|rest| rest.contains(&matcher))
                };
                assert!(shown.lines().any(shows), "{alert}: nothing shows {name} with {matcher}:\n{shown}");
                seen.insert(name.to_owned());
            }
        }
        assert_eq!(seen.len(), 7, "an alert for each metric: {seen:?}");
    }
}
