//! Metrics of each source.

use std::collections::BTreeMap;

use lucid_e2e::{AtomicWriter, Operator, eventually};
use serde_json::json;

use super::{Authority, DAYS, SETTLE, write_bundles, write_secret};
use crate::cli::{grant, kubeconfig_for};
use crate::common::{GUARDRAILS, assert_injected, cluster, get, operator};

async fn metrics(operator: &Operator) -> BTreeMap<String, f64> {
    let (_, text) = get(operator, "/metrics").await;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let about = lines.filter(|line| line.contains("_certificate_") || line.contains("_trust_bundle_"));
    about
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Days until a certificate expires; `None` if there is no metric.
fn days_left(metrics: &BTreeMap<String, f64>, certificate: &str, source: &str) -> Option<f64> {
    let name = format!(
        r#"lucid_certificate_expiry_timestamp_seconds{{certificate="{certificate}",source="{source}"}}"#
    );
    metrics.get(&name).map(|end| ((end - now()) / 86_400.0).round())
}

fn is(metrics: &BTreeMap<String, f64>, name: &str, value: f64) {
    assert_eq!(metrics.get(name), Some(&value), "{name} in {metrics:#?}");
}

const TARGETS: [&str; 2] =
    ["MutatingWebhookConfiguration/lucid-operator", "ValidatingWebhookConfiguration/lucid-operator"];

#[tokio::test]
async fn our_authority_reports_expiry_phase_and_publication() {
    let cluster = cluster().await;
    let operator = operator(&cluster, |operator| operator).await;
    let metrics = metrics(&operator).await;
    assert_eq!(days_left(&metrics, "ca", "self-managed"), Some(365.0));
    assert_eq!(days_left(&metrics, "leaf", "self-managed"), Some(7.0));
    assert_eq!(days_left(&metrics, "next_ca", "self-managed"), None);
    // Not exported, since it lives for days only: an alert on external certificates would always fire.
    assert_eq!(days_left(&metrics, "source", "self-managed"), None);
    is(&metrics, r#"lucid_certificate_rotation_phase{phase="stable"}"#, 1.0);
    is(&metrics, r#"lucid_certificate_rotation_phase{phase="emergency"}"#, 0.0);
    is(&metrics, "lucid_certificate_ready", 1.0);
    is(&metrics, r#"lucid_certificate_reloads_total{source="self-managed",result="swapped",reason=""}"#, 1.0);
    for target in TARGETS {
        is(
            &metrics,
            &format!(r#"lucid_trust_bundle_publications_total{{target="{target}",result="written"}}"#),
            1.0,
        );
        is(
            &metrics,
            &format!(r#"lucid_trust_bundle_publications_total{{target="{target}",result="error"}}"#),
            0.0,
        );
        is(&metrics, &format!(r#"lucid_trust_bundle_drift_healed_total{{target="{target}"}}"#), 0.0);
    }
    let success = metrics[r#"lucid_certificate_last_success_timestamp_seconds{source="self-managed"}"#];
    assert!(now() - success < 60.0, "{success}");

    write_bundles(&cluster, &[]).await;
    for target in TARGETS {
        let line = format!(r#"lucid_trust_bundle_drift_healed_total{{target="{target}"}} 1"#);
        super::counted(&operator, &line).await;
    }
}

#[tokio::test]
async fn external_certificates_report_expiry_and_refusals() {
    let cluster = cluster().await;
    for (source, name, publishes) in [
        ("secret", "secret", true),
        ("cert-manager", "secret", false),
        ("openshift", "secret", false),
        ("files", "files", true),
        ("olm", "files", false),
    ] {
        let authority = Authority::new(source);
        let good = authority.serving(cluster.host_address()).files(Some(&authority.certificate));
        let mut bad = good.clone();
        bad.insert("tls.key".to_owned(), b"no key".to_vec());
        let folder = tempfile::tempdir().unwrap();
        let volume = AtomicWriter::new(folder.path());
        let write = async |files| match name {
            "secret" => write_secret(&cluster, files).await,
            _ => volume.write(&files).unwrap(),
        };
        write(good).await;

        let builder = Operator::builder(&cluster).named(source).env("LUCID_CERTIFICATES", source);
        let builder = builder.flag("--trust-settle", SETTLE);
        let builder = match name {
            "files" => builder.env("LUCID_TLS_DIRECTORY", folder.path().to_str().unwrap()),
            _ => builder,
        };
        let mut operator = builder.spawn().unwrap();
        let reloads =
            |result: &str| format!(r#"lucid_certificate_reloads_total{{source="{name}",{result}}}"#);
        super::counted(&operator, &format!("{} 1", reloads(r#"result="swapped",reason="""#))).await;
        if !publishes && source != "olm" {
            write_bundles(&cluster, &[&authority]).await;
        }
        operator.ready().await.unwrap();
        let metrics = metrics(&operator).await;
        let days = Some(f64::from(DAYS));
        assert_eq!(days_left(&metrics, "source", name), days, "{source}");
        assert_eq!(days_left(&metrics, "leaf", name), days, "{source}");
        // Known only from a ca.crt that the program publishes.
        assert_eq!(days_left(&metrics, "ca", name), days.filter(|_| publishes), "{source}");
        // The program does not manage registrations by OLM.
        for target in TARGETS.into_iter().filter(|_| source != "olm") {
            let written =
                format!(r#"lucid_trust_bundle_publications_total{{target="{target}",result="written"}}"#);
            assert_eq!(metrics[&written] > 0.0, publishes, "{source}: {written}");
        }
        is(&metrics, "lucid_certificate_ready", 1.0);

        write(bad).await;
        super::logged(&operator, "the certificate in service stays").await;
        let refused = reloads(r#"result="refused",reason="malformed""#);
        eventually(&refused, async || self::metrics(&operator).await[&refused] > 0.0).await;
        assert_eq!(days_left(&self::metrics(&operator).await, "leaf", name), days, "{source}");
    }
}

#[tokio::test]
async fn missing_permissions_are_counted_and_retried() {
    let cluster = cluster().await;
    let kubeconfig = kubeconfig_for(&cluster, "nobody");
    let mut operator = Operator::builder(&cluster).kubeconfig(kubeconfig).spawn().unwrap();
    for target in TARGETS {
        let failed = format!(r#"lucid_trust_bundle_publications_total{{target="{target}",result="error"}}"#);
        eventually(&failed, async || metrics(&operator).await.get(&failed).is_some_and(|count| *count > 0.0))
            .await;
    }
    super::logged(&operator, "is forbidden").await;
    assert_eq!(get(&operator, "/healthz").await.0, 200);
    let (status, text) = get(&operator, "/readyz").await;
    assert!(status == 503 && text.contains("certificates"), "{status} {text}");

    grant(&cluster, "nobody", &json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]));
    eventually("it is ready", async || get(&operator, "/readyz").await.0 == 200).await;
    operator.ready().await.unwrap();
    assert_injected(&cluster, "web", GUARDRAILS).await;
}
