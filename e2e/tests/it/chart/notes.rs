//! Notes that helm prints after an installation.

use lucid_testbed::Component;
use serde_json::Value;

use super::{CHART, printed, program};

async fn notes(values: &[&str]) -> String {
    let mut helm = program(Component::Helm).await;
    helm.args(["install", "lucid", CHART, "--namespace", "audit", "--dry-run=client", "--output=json"]);
    // No API server is contacted.
    helm.env("KUBECONFIG", "/nonexistent").args(values.iter().flat_map(|value| ["--set", *value]));
    let release: Value = serde_json::from_str(&printed(helm.output().unwrap()).unwrap()).unwrap();
    release["info"]["notes"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn notes_explain_each_mode_and_the_next_steps() {
    const VALIDATOR: &str = "webhooks.validating.by=validator";
    const CLAIMS: &str = "decisions.log.volume=persistentVolumeClaim";
    const PII: &str = "catalogue.chain[0].name=pii";
    const BY_DIGEST: &str = "catalogue.chain[0].image=r.test/pii@sha256:0f3c000000000000000000000000000000000000000000000000000000000000";
    let always: &[&str] = &["--namespace audit", "rollout status"];
    let cases: &[(&[&str], &[&str], &[&str])] = &[
        (
            &[],
            &["deployment/lucid-operator", "helm test", "lucid.io/secured", "notary.strict=true"],
            &["lucid-validator"],
        ),
        (&["notary.strict=true", "notary.url=https://v.test"], &["by digest"], &["In production"]),
        (
            &[
                "notary.strict=true",
                "notary.url=https://v.test",
                PII,
                BY_DIGEST,
                "webhooks.clientCa.configMap=ca",
                "decisions.log.enabled=false",
            ],
            &[],
            &["Note: "],
        ),
        (
            &[],
            &["Every pod can call the webhooks", "profile=production"],
            &["policy.admissionMode is enforce"],
        ),
        (
            &["profile=production", "notary.url=https://v.test", "webhooks.clientCa.configMap=ca"],
            &["refuses nothing until the mode is enforce"],
            &["Every pod can call", "only warned of"],
        ),
        (
            &["networkPolicy.enabled=true", "networkPolicy.apiServerCidrs[0]=10.0.0.1/32"],
            &[],
            &["Every pod can call"],
        ),
        (
            &["webhooks.namespaceSelector=team=x", "webhooks.objectSelector=audit=yes"],
            &["team=x", "audit=yes"],
            &["kubectl label namespace"],
        ),
        (&["webhooks.validating.by=both"], &["deployment/lucid-validator", "choose one"], &[]),
        (&[VALIDATOR], &["deployment/lucid-validator"], &["choose one"]),
        (
            &[],
            &[
                "deployment/lucid-operator",
                "lost with their pods",
                "verifier keys outside",
                "generated its key",
            ],
            &["below 2"],
        ),
        (
            &[VALIDATOR, CLAIMS, "decisions.log.key.secret=k"],
            &[
                "statefulset/lucid-validator",
                "statefulset/lucid-operator",
                "verifier keys outside the cluster",
            ],
            &["lost with their pods", "generated its key"],
        ),
        (&["decisions.log.enabled=false"], &[], &["lost with their pods", "verifier keys"]),
        (
            &[VALIDATOR, "webhooks.mutating.enabled=false"],
            &["deployment/lucid-validator"],
            &["lucid-operator\n", "helm test"],
        ),
        (&[VALIDATOR, CLAIMS, "validator.replicas=1"], &["validator.replicas is below 2"], &["drained"]),
        (
            &["operator.replicas=1", "operator.maxUnavailable=0"],
            &["operator.maxUnavailable=0 with one replica: a node that it runs on cannot be drained."],
            &[],
        ),
        (
            &[VALIDATOR, "webhooks.mutating.enabled=false", "uninstall.enabled=false"],
            &["lucid uninstall --namespace audit"],
            &[],
        ),
        (&["webhooks.validating.enabled=false"], &["Nobody validates"], &["notary.strict"]),
        (&["webhooks.mutating.failurePolicy=Ignore"], &["run without audit", "--backstop"], &[]),
        (&["webhooks.validating.failurePolicy=Ignore"], &["admitted without validation", "--backstop"], &[]),
        (&["certificates.source=olm"], &["Operator Lifecycle Manager"], &[]),
        (
            &["cainjector.enabled=true"],
            &["may read Secrets of these namespaces only: audit"],
            &["all namespaces"],
        ),
        (
            &["cainjector.enabled=true", "cainjector.secretNamespaces={*}"],
            &["may read Secrets of all namespaces"],
            &[],
        ),
        (&["cainjector.enabled=true", "cainjector.secretNamespaces={a,b}"], &["namespaces only: a, b"], &[]),
        (&["uninstall.enabled=false"], &["lucid uninstall --namespace audit"], &[]),
    ];
    for (values, says, says_not) in cases {
        let notes = notes(values).await;
        for part in says.iter().chain(always) {
            assert!(notes.contains(part), "{values:?}: {part:?} is not in {notes}");
        }
        for part in *says_not {
            assert!(!notes.contains(part), "{values:?}: {part:?} is in {notes}");
        }
    }
}
