//! Results of a correlation, for node exporter's textfile collector.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use jiff::Timestamp;
use lucid_audit::correlate::Correlator;
use serde_json::json;

/// Writes the file atomically.
pub(super) fn write(path: &Path, correlator: &Correlator) -> io::Result<()> {
    let text = text(correlator);
    // The collector reads only *.prom.
    let temporary = path.with_extension("prom.tmp");
    fs::write(&temporary, text)?;
    fs::rename(&temporary, path)
}

fn text(correlator: &Correlator) -> String {
    const DRIFT: &str = "Differences between the log of decisions and the API server's audit log.";
    let mut text =
        format!("# HELP lucid_audit_drift_total {DRIFT}\n# TYPE lucid_audit_drift_total counter\n");
    for (class, count) in correlator.drifts() {
        let _ = writeln!(text, "lucid_audit_drift_total{{class=\"{class}\"}} {count}");
    }
    let mut values = json!(correlator.tally());
    values["timestamp"] = Timestamp::now().as_second().into();
    for (key, suffix, kind, help) in [
        ("events", "_total", "counter", "Events of the API server that were read."),
        ("unreadable", "_total", "counter", "Lines of the API server's audit log that are not events."),
        ("anchors", "_total", "counter", "Anchors in these events."),
        ("records", "_total", "counter", "Records of the logs that were read."),
        ("matched", "_total", "counter", "Records with a matching anchor."),
        ("pending", "", "gauge", "Records not matched yet."),
        ("timestamp", "_seconds", "gauge", "Time of the last comparison, in Unix time."),
    ] {
        let (name, value) = (format!("lucid_audit_correlate_{key}{suffix}"), &values[key]);
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use serde_yaml::Value;

    use super::*;

    #[test]
    fn every_metric_of_the_alerts_about_decisions_is_shown() {
        let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus-rule.yaml");
        let rules: Value = serde_yaml::from_str(&fs::read_to_string(rules).unwrap()).unwrap();
        let mut registry = Registry::with_prefix("lucid");
        let _ = lucid_audit::Recorder::new(0).with_metrics(&mut registry);
        lucid_admission::ValidationMetrics::new(&mut registry);
        let mut shown = text(&Correlator::new(jiff::SignedDuration::ZERO));
        encode(&mut shown, &registry).unwrap();
        let mut groups = rules["spec"]["groups"].as_sequence().unwrap().iter();
        let group = groups.find(|group| group["name"] == "lucid-decisions").unwrap();
        let rules = group["rules"].as_sequence().unwrap();
        assert_eq!(rules.len(), 5);
        for rule in rules {
            let expression = rule["expr"].as_str().unwrap();
            let begin = expression.find("lucid_").unwrap();
            let rest = &expression[begin..];
            let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap();
            let (name, rest) = rest.split_at(end);
            let matcher =
                rest.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(it, _)| it);
            let matchers: Vec<_> = match matcher.split_once("=~") {
                Some((label, values)) => {
                    values.trim_matches('"').split('|').map(|value| format!("{label}=\"{value}\"")).collect()
                }
                None => vec![matcher.to_owned()],
            };
            for matcher in matchers {
                let of_this = |line: &str| line.starts_with(&format!("{name}{{")) && line.contains(&matcher);
                assert!(shown.lines().any(of_this), "nothing shows {matcher} of {expression}:\n{shown}");
            }
        }
    }
}
