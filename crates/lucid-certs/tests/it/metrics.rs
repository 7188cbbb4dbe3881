//! Exported metrics.

use std::time::{Duration, SystemTime};

use lucid_certs::{
    metrics::{CertificateKind, Metrics, Phase, Publication, Reload},
    source::Reason,
};
use prometheus_client::{encoding::text::encode, registry::Registry};

/// Returns the lines of a scrape that start with `begin`.
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
    let source = metrics.source("files");
    let _target = metrics.target("ConfigMap/default/trust");

    assert_eq!(value(&registry, "certificate_ready"), Some(0));
    assert_eq!(scrape(&registry, "certificate_rotation_phase{").len(), 8);
    assert_eq!(value(&registry, r#"certificate_rotation_phase{phase="stable"}"#), Some(1));
    let reloads = scrape(&registry, "certificate_reloads_total{");
    assert!(reloads.len() == 10 && reloads.iter().all(|line| line.ends_with(" 0")), "{reloads:?}");
    for reload in [r#"result="swapped",reason="""#, r#"result="refused",reason="not_yet_valid""#] {
        let series = format!(r#"certificate_reloads_total{{source="files",{reload}}}"#);
        assert_eq!(value(&registry, &series), Some(0), "{series} in {reloads:?}");
    }
    assert_eq!(value(&registry, r#"certificate_last_success_timestamp_seconds{source="files"}"#), Some(0));
    for result in ["written", "unchanged", "conflict", "error"] {
        let labels = format!(r#"{{target="ConfigMap/default/trust",result="{result}"}}"#);
        assert_eq!(value(&registry, &format!("trust_bundle_publications_total{labels}")), Some(0));
    }
    let healed = r#"trust_bundle_drift_healed_total{target="ConfigMap/default/trust"}"#;
    assert_eq!(value(&registry, healed), Some(0));
    assert!(scrape(&registry, "certificate_expiry").is_empty(), "there is no certificate yet");

    source.expiry(CertificateKind::Source, Some(SystemTime::now()));
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
    let source = Metrics::new(&mut registry).source("self-managed");
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let series = |certificate: &str| {
        format!(
            r#"certificate_expiry_timestamp_seconds{{certificate="{certificate}",source="self-managed"}}"#
        )
    };
    let kinds = [
        (CertificateKind::Ca, "ca"),
        (CertificateKind::NextCa, "next_ca"),
        (CertificateKind::Leaf, "leaf"),
        (CertificateKind::Source, "source"),
    ];
    for (kind, label) in kinds {
        source.expiry(kind, Some(end));
        assert_eq!(value(&registry, &series(label)), Some(1_800_000_000));
    }
    source.expiry(CertificateKind::NextCa, None);
    assert_eq!(value(&registry, &series("next_ca")), None);
    assert_eq!(value(&registry, &series("ca")), Some(1_800_000_000));
}

#[test]
fn events_are_counted_by_label() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let (files, target) = (metrics.source("files"), metrics.target("APIService/v1.example.com"));
    for reload in [Reload::Swapped, Reload::Refused(Reason::Mismatch), Reload::Refused(Reason::Mismatch)] {
        files.reload(reload);
    }
    files.success(SystemTime::UNIX_EPOCH + Duration::from_secs(7));
    target.publication(Publication::Conflict);
    target.drift_healed();
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
