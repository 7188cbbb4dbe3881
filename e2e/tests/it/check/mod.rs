//! `lucid check`: success and failure of each check, on a real API server.

mod permissions;
mod quotas;
mod validator;

use std::path::Path;

use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use lucid_e2e::{OperatorBuilder, eventually};
use lucid_testbed::Cluster;
use serde_json::{Value, json};

use crate::cli::{Ran, grant, kubeconfig_for, lucid_with};
use crate::common::{
    cluster, config_map, create, create_object, deployment, operator, pod, prepare, secured, secured_with,
    with_chain,
};

pub(crate) struct Checked {
    status: Option<i32>,
    report: Value,
}

impl Checked {
    /// Status and text of the first check of this name, and of this object if one is given.
    fn of(&self, check: &str, object: &str) -> (&str, String) {
        let found = self.report["checks"].as_array().unwrap().iter().find(|it| {
            it["check"] == check
                && (object.is_empty() || it["object"].as_str().is_some_and(|it| it.contains(object)))
        });
        let found = found.unwrap_or_else(|| panic!("{check} {object} is not in {:#}", self.report));
        (
            found["status"].as_str().unwrap(),
            format!("{} {} {}", found["found"], found["action"], found["pods"]),
        )
    }

    #[track_caller]
    pub(crate) fn assert(&self, check: &str, object: &str, status: &str, texts: &[&str]) {
        let (found, text) = self.of(check, object);
        assert_eq!(found, status, "{check} {object}: {text}");
        for part in texts {
            assert!(text.contains(part), "{check} {object}: {part:?} is not in {text}");
        }
    }
}

pub(crate) async fn check(cluster: &Cluster) -> Checked {
    check_as(&cluster.kubeconfig_path(), &[]).await
}

async fn check_as(kubeconfig: &Path, arguments: &[&str]) -> Checked {
    let ran = run(kubeconfig, &[arguments, &["-o", "json"]].concat()).await;
    let report = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    Checked { status: ran.status, report }
}

async fn run(kubeconfig: &Path, arguments: &[&str]) -> Ran {
    // The settings of the operator in these tests.
    let environment = [("KUBECONFIG", kubeconfig.to_str().unwrap()), ("LUCID_ALLOW_SKIP", "true")];
    lucid_with(&[&["check"], arguments].concat(), &environment).await
}

async fn count_pods(cluster: &Cluster) -> usize {
    let pods: Api<Pod> = Api::all(cluster.client());
    pods.list(&ListParams::default()).await.unwrap().items.len()
}

async fn change(cluster: &Cluster, patch: Value) {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
    api.patch("lucid-operator", &PatchParams::default(), &patch).await.unwrap();
}

/// In one cluster, with the default settings.
#[tokio::test]
async fn a_running_operator_is_checked() {
    let cluster = cluster().await;
    let mut operator = operator(&cluster, |it| it).await;
    all_is_well_and_nothing_changes(&cluster).await;
    missing_permissions_are_unknown(&cluster).await;
    other_injectors_and_their_order(&cluster).await;
    validator::the_webhook_for_workloads(&cluster, &mut operator).await;
}

async fn all_is_well_and_nothing_changes(cluster: &Cluster) {
    create(cluster, "shop", &secured("web")).await.stored().unwrap();
    let skipped = secured_with("batch", json!({"lucid.computing/skip-audit": "true"}));
    create(cluster, "shop", &skipped).await.stored().unwrap();
    create(cluster, "shop", &pod("plain", json!({}), json!({}))).await.stored().unwrap();

    let checked = check(cluster).await;
    assert_eq!(checked.status, Some(0), "{:#}", checked.report);
    assert_eq!(checked.report["version"], 1);
    assert_eq!(checked.report["namespace"], "lucid-system");
    for webhook in ["mutate.lucid.computing", "validate.lucid.computing", "workloads.lucid.computing"] {
        checked.assert("registration", webhook, "ok", &[]);
        checked.assert("certificate", webhook, "ok", &["1 of 1 servers", "until 20"]);
    }
    checked.assert("operator", "", "warning", &["no Deployment or StatefulSet lucid-system/lucid-operator"]);
    let anybody =
        ["calls without a client certificate are accepted", "LUCID_CLIENT_CA", "docs/authentication.md"];
    checked.assert("callers", "", "warning", &anybody);
    checked.assert("decision-log", "", "ok", &["no decision log is configured"]);
    checked.assert("selectors", "", "ok", &["shop"]);
    checked.assert("overlap", "", "ok", &[]);
    checked.assert("configuration", "", "ok", &[]);
    checked.assert("reachable", "", "ok", &["shop", "dry run"]);
    checked.assert("pods-without-chain", "", "ok", &["1 have the current chain"]);
    checked.assert("stale-chains", "", "ok", &[]);
    checked.assert("wrong-chains", "", "ok", &[]);
    checked.assert("skipped-pods", "", "ok", &["batch"]);
    assert_eq!(count_pods(cluster).await, 3, "the check made pods");

    let table = run(&cluster.kubeconfig_path(), &[]).await.printed();
    let rows: Vec<_> = table.lines().collect();
    assert!(rows[0].contains("CHECK") && rows[0].contains("STATUS") && rows[0].contains("FOUND"), "{table}");
    assert!(
        rows.iter().any(|row| row.contains("certificate mutate.lucid.computing") && row.contains(" ok ")),
        "{table}"
    );
}

/// If the API server drops image volumes, the pod is refused with the reason.
#[tokio::test]
async fn image_volumes_are_stored_or_reported() {
    let cluster = cluster().await;
    let yaml = "chain: [{name: rules, image: 'example.com/rules:1', \
                files: [{mountPath: /rules, image: {reference: 'example.com/files:1'}}]}]";
    config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", yaml).await;
    let enforcing =
        |it: OperatorBuilder| it.env("LUCID_ADMISSION_MODE", "enforce").env("LUCID_TIER_LABEL", "");
    let _operator = operator(&cluster, enforcing).await;
    let mut plain = pod("plain", json!({}), json!({}));
    plain["spec"]["volumes"] = json!([{"name": "files", "image": {"reference": "example.com/files:1"}}]);
    let plain = create(&cluster, "other", &plain).await.stored().unwrap();
    let volumes = plain.spec.unwrap().volumes.unwrap_or_default();
    let is_stored = volumes.iter().any(|volume| volume.image.is_some());

    let checked = check(&cluster).await;
    let web = create(&cluster, "shop", &with_chain("web", "rules")).await;
    if is_stored {
        checked.assert("image-volumes", "", "ok", &["stores image volumes"]);
        assert_eq!(web.status, 201, "{web:?}");
    } else {
        let missing = "this Kubernetes has no image volumes";
        checked.assert("image-volumes", "", "failed", &[missing, "auditor rules"]);
        assert!(web.refusal().contains(missing), "{web:?}");
    }
}

#[tokio::test]
async fn pods_without_their_chain_have_a_reason_and_an_action() {
    let cluster = cluster().await;
    create(&cluster, "shop", &secured("early")).await.stored().unwrap();
    create(&cluster, "other", &secured("elsewhere")).await.stored().unwrap();
    create(&cluster, "shop", &pod("odd", json!({"lucid.io/secured": "yes"}), json!({})))
        .await
        .stored()
        .unwrap();
    let host = |name: &str| {
        let mut host = secured(name);
        host["spec"]["hostNetwork"] = json!(true);
        host
    };
    create(&cluster, "shop", &host("host")).await.stored().unwrap();
    // Creation times have a resolution of one second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    let ignoring = operator(&cluster, |it| it.env("LUCID_FAILURE_POLICY", "Ignore")).await;
    create(&cluster, "shop", &pod("late", json!({}), json!({}))).await.stored().unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    let label = Patch::Merge(json!({"metadata": {"labels": {"lucid.io/secured": "true"}}}));
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    pods.patch("late", &PatchParams::default(), &label).await.unwrap();
    // The pods of a Deployment share one line. Without an operator there is no validation.
    let checked = check(&cluster).await;
    assert_eq!(checked.status, Some(1), "{:#}", checked.report);
    checked.assert("registration", "mutate", "warning", &["Ignore", "LUCID_FAILURE_POLICY=Fail"]);
    checked.assert("pods-not-asking", "", "warning", &["odd", "\\\"yes\\\""]);
    let groups = checked.report["checks"].as_array().unwrap().iter();
    let groups =
        groups.filter(|it| it["check"] == "pods-without-chain").flat_map(|it| it["pods"].as_array().unwrap());
    let groups: Vec<_> = groups.collect();
    for (example, reason, action) in [
        ("early", "created before the webhook was registered", "recreate it"),
        (
            "elsewhere",
            "the namespace is not enabled",
            "kubectl label namespace other lucid.computing/enabled=true",
        ),
        ("host", "hostNetwork", "recreate it"),
        ("late", "requested a chain only after creation", "recreate it"),
    ] {
        let group = groups.iter().find(|it| it["example"] == example);
        let group = group.unwrap_or_else(|| panic!("{example} is not in {:#}", checked.report));
        assert!(group["reason"].as_str().unwrap().contains(reason), "{group}");
        assert!(group["action"].as_str().unwrap().contains(action), "{group}");
    }
    assert_eq!(groups.len(), 4, "{:#}", checked.report);

    // The webhook no longer responds, and Ignore admits pods.
    drop(ignoring);
    let validating: Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
        Api::all(cluster.client());
    validating.delete("lucid-operator", &DeleteParams::default()).await.unwrap();
    // The API server calls a deleted webhook until its cache follows.
    eventually("the pod is created", async || create(&cluster, "shop", &secured("missed")).await.stored())
        .await;
    let checked = check(&cluster).await;
    checked.assert("registration", "validate", "failed", &["is not registered"]);
    checked.assert("reachable", "", "failed", &["gets no chain", "Ignore"]);
    checked.assert("certificate", "mutate", "unknown", &["no server is reachable from here"]);
    checked.assert(
        "pods-without-chain",
        "",
        "failed",
        &["missed", "was unavailable, and its failurePolicy is Ignore"],
    );
}

#[tokio::test]
async fn changed_catalogues_make_chains_stale_and_other_images_wrong() {
    let cluster = Cluster::builder().controller_manager().start().await.unwrap();
    let cluster = prepare(cluster).await;
    let running = operator(&cluster, |it| it).await;
    create_object::<Deployment>(&cluster, deployment("web", 3, &with_chain("", "toxicity"))).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "shop");
    eventually("three pods of the Deployment", async || {
        pods.list(&ListParams::default()).await.unwrap().items.len() == 3
    })
    .await;
    let checked = check(&cluster).await;
    assert_eq!(checked.status, Some(0), "{:#}", checked.report);
    checked.assert("pods-without-chain", "", "ok", &["3 have the current chain"]);

    let catalogue = |image: &str, threshold: &str| {
        format!(
            "chain: [{{name: lucid-toxicity-auditor, image: {image}, port: 8093, env: {{THRESHOLD: \"{threshold}\"}}}}]"
        )
    };
    let set = async |yaml: &str| {
        config_map(&cluster, "lucid-system", "lucid-auditors", "auditors.yaml", yaml).await
    };
    set(&catalogue("r.test/toxicity:2", "1")).await;
    let checked = check(&cluster).await;
    assert_eq!(checked.status, Some(1), "{:#}", checked.report);
    checked.assert(
        "stale-chains",
        "",
        "failed",
        &[
            "outdated chain: 3",
            "image of lucid-toxicity-auditor is ghcr.io/lucid/lucid-toxicity-auditor:latest, now r.test/toxicity:2",
            "kubectl -n shop rollout restart deployment/web",
        ],
    );
    // As `helm test` does: checks the release only, regardless of other pods.
    let alone = check_as(&cluster.kubeconfig_path(), &["--skip-pods"]).await;
    assert_eq!(alone.status, Some(0), "{:#}", alone.report);
    let checks = alone.report["checks"].as_array().unwrap().iter();
    let names: Vec<_> = checks.map(|it| it["check"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"configuration")
            && !names.iter().any(|it| it.contains("pods") || it.contains("chains")),
        "{names:?}"
    );
    let stale =
        checked.report["checks"].as_array().unwrap().iter().find(|it| it["check"] == "stale-chains").unwrap();
    assert_eq!(stale["pods"].as_array().unwrap().len(), 1, "{stale}");
    assert_eq!(
        (&stale["pods"][0]["owner"], &stale["pods"][0]["pods"]),
        (&json!("deployment/web"), &json!(3))
    );

    // One changed variable.
    let image = "ghcr.io/lucid/lucid-toxicity-auditor:latest";
    set(&catalogue(image, "1")).await;
    check(&cluster).await.assert(
        "stale-chains",
        "",
        "failed",
        &["THRESHOLD", "of lucid-toxicity-auditor differs"],
    );
    drop(running);
    // The images of a running pod's containers can be changed.
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(cluster.client(), "lucid-system");
    maps.delete("lucid-auditors", &DeleteParams::default()).await.unwrap();
    let validating: Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
        Api::all(cluster.client());
    validating.delete("lucid-operator", &DeleteParams::default()).await.unwrap();
    let name = pods.list(&ListParams::default()).await.unwrap().items[0].name_any();
    let evil = json!({"spec": {"containers": [{"name": "lucid-toxicity-auditor", "image": "r.test/evil"}]}});
    // The API server calls a deleted webhook until its cache follows.
    eventually("the pod is changed", async || {
        pods.patch(&name, &PatchParams::default(), &Patch::Strategic(&evil)).await
    })
    .await;
    let checked = check(&cluster).await;
    checked.assert("wrong-chains", "", "failed", &["replaced: 1", "r.test/evil", "injected was ghcr.io"]);
    checked.assert("stale-chains", "", "ok", &[]);

    // An unreadable chain: only the operator knows the last valid content.
    config_map(&cluster, "shop", "lucid-auditor-chain", "chain", "toxcity").await;
    let checked = check(&cluster).await;
    checked.assert("configuration", "", "failed", &["shop/lucid-auditor-chain", "toxcity"]);
    checked.assert("pods-unknown", "", "unknown", &["evaluated: 3"]);
    set("chain: 7").await;
    check(&cluster).await.assert("configuration", "", "failed", &["lucid-auditors", "line 1"]);
}

#[tokio::test]
async fn a_wrong_bundle_and_a_changed_registration_fail() {
    let cluster = cluster().await;
    let mut running = operator(&cluster, |it| it).await;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let good = configurations.get("lucid-operator").await.unwrap();
    // Nothing restores the registration, but a server is needed: the same certificate authority at another address.
    running.kill();
    let names = lucid_certs::ServingNames::for_hosts(&["127.0.0.1"]).unwrap();
    let now = std::time::SystemTime::now();
    let ca = |at| lucid_certs::CertificateAuthority::generate(&names, at).unwrap();
    let (foreign, serving) = (ca(now), ca(now));
    let url = serve(serving.issue(&names, now).unwrap()).await;
    let bundle = |ca: &lucid_certs::CertificateAuthority| {
        serde_json::to_value(k8s_openapi::ByteString(ca.trust_bundle().to_pem().into_bytes())).unwrap()
    };
    let lead = |bundle: Value| json!([{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": url, "caBundle": bundle}}]);
    let mutate = "mutate.lucid.computing";

    change(&cluster, lead(bundle(&serving))).await;
    check(&cluster).await.assert("certificate", mutate, "ok", &["1 of 1 servers"]);
    change(&cluster, lead(bundle(&foreign))).await;
    let checked = check(&cluster).await;
    assert_eq!(checked.status, Some(1));
    checked.assert("certificate", mutate, "failed", &["does not verify the serving certificate"]);
    checked.assert("reachable", "", "failed", &["x509", "see the check certificate"]);
    let year = std::time::Duration::from_hours(24 * 366 * 2);
    change(&cluster, lead(bundle(&ca(now - year)))).await;
    check(&cluster).await.assert("certificate", mutate, "failed", &["are expired"]);
    let soon = ca(now - std::time::Duration::from_hours(24 * 362));
    let merged = serving.trust_bundle().merge(&soon.trust_bundle());
    let merged = k8s_openapi::ByteString(merged.to_pem().into_bytes());
    change(&cluster, lead(serde_json::to_value(merged).unwrap())).await;
    check(&cluster).await.assert("certificate", mutate, "ok", &[]);
    change(&cluster, json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}])).await;
    check(&cluster).await.assert("certificate", mutate, "failed", &["the caBundle is empty"]);

    // Rules of the registration.
    for (patch, part) in [
        (
            json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["DELETE"]}]),
            "rules is",
        ),
        (
            json!([{"op": "add", "path": "/webhooks/0/matchConditions", "value": [{"name": "never", "expression": "false"}]}]),
            "matchConditions",
        ),
        (
            json!([{"op": "replace", "path": "/webhooks/0/reinvocationPolicy", "value": "Never"}]),
            "reinvocationPolicy",
        ),
    ] {
        change(&cluster, json!([{"op": "replace", "path": "/webhooks", "value": good.webhooks}])).await;
        change(&cluster, patch).await;
        let checked = check(&cluster).await;
        assert_eq!(checked.status, Some(1));
        checked.assert("registration", mutate, "failed", &[part, "should be"]);
    }
    change(&cluster, json!([{"op": "replace", "path": "/webhooks", "value": good.webhooks}])).await;
    change(&cluster, json!([{"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {}}])).await;
    check(&cluster).await.assert("selectors", "", "failed", &["kube-system", "lucid-system", "never acts"]);
    change(&cluster, json!([{"op": "replace", "path": "/webhooks/0/namespaceSelector", "value": {"matchLabels": {"a": "b"}}}])).await;
    check(&cluster).await.assert("selectors", "", "warning", &["in no namespace"]);

    // A Service without endpoints, and a missing Service.
    let service = json!({"metadata": {"name": "lucid-operator-webhook"}, "spec": {"ports": [{"name": "webhook", "port": 443}]}});
    let lead = json!({"service": {"namespace": "lucid-system", "name": "lucid-operator-webhook", "path": "/mutate"}, "caBundle": bundle(&serving)});
    change(&cluster, json!([{"op": "replace", "path": "/webhooks", "value": good.webhooks}])).await;
    change(&cluster, json!([{"op": "replace", "path": "/webhooks/0/clientConfig", "value": lead}])).await;
    let checked = check(&cluster).await;
    checked.assert("endpoints", "lucid-operator-webhook", "failed", &["not found"]);
    checked.assert("reachable", "", "failed", &["not found", "the Service has no endpoints"]);
    let services: Api<Service> = Api::namespaced(cluster.client(), "lucid-system");
    services.create(&Default::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    check(&cluster).await.assert("endpoints", "lucid-operator-webhook", "failed", &["no endpoints"]);
    let address = url.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let (_, port) = address.rsplit_once(':').unwrap();
    let slice = |ready: bool| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "lucid",
        "labels": {"kubernetes.io/service-name": "lucid-operator-webhook"}}, "addressType": "IPv4",
        "ports": [{"name": "webhook", "port": port.parse::<u16>().unwrap()}],
        "endpoints": [{"addresses": ["10.255.0.1"], "conditions": {"ready": ready}}]})
    };
    let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
        Api::namespaced(cluster.client(), "lucid-system");
    for (ready, status, text) in
        [(false, "failed", "0 of 1 endpoints ready"), (true, "ok", "1 of 1 endpoints ready")]
    {
        slices.patch("lucid", &PatchParams::apply("e2e"), &Patch::Apply(slice(ready))).await.unwrap();
        check(&cluster).await.assert("endpoints", "lucid-operator-webhook", status, &[text]);
    }
}

async fn serve(certificate: lucid_certs::ServingCertificate) -> String {
    use std::sync::Arc;
    let resolver = Arc::new(lucid_certs::ServingCertificateResolver::default());
    resolver.swap(&certificate);
    let tls = lucid_certs::ServerTls::new(resolver).build().unwrap();
    let server = lucid_webhook::Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let url = format!("https://{}/", server.local_addr());
    tokio::spawn(async move {
        server.serve(tls, lucid_webhook::Router::new(), std::future::pending::<()>()).await
    });
    url
}

async fn other_injectors_and_their_order(cluster: &Cluster) {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    for (name, selector) in [
        ("istio-sidecar-injector", json!({"matchLabels": {"lucid.computing/enabled": "true"}})),
        ("vault-agent-injector-cfg", json!({})),
        ("far-away", json!({"matchLabels": {"team": "none"}})),
    ] {
        let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]});
        let other = json!({"metadata": {"name": name}, "webhooks": [{"name": "other.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "namespaceSelector": selector,
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [rule], "timeoutSeconds": 1}]});
        api.create(&Default::default(), &serde_json::from_value(other).unwrap()).await.unwrap();
    }
    let checked = check(cluster).await;
    assert_eq!(checked.status, Some(0), "{:#}", checked.report);
    checked.assert(
        "overlap",
        "istio-sidecar-injector/",
        "warning",
        &["before Lucid", "network rules", "shop"],
    );
    checked.assert("overlap", "vault-agent-injector-cfg/", "ok", &["after Lucid", "called again"]);
    assert!(!checked.report.to_string().contains("far-away"), "{:#}", checked.report);
}

async fn missing_permissions_are_unknown(cluster: &Cluster) {
    let path = kubeconfig_for(cluster, "auditor");
    let checked = check_as(&path, &[]).await;
    assert_eq!(checked.status, Some(0), "{:#}", checked.report);
    checked.assert(
        "registration",
        "mutate",
        "unknown",
        &["grant the permission to list mutatingwebhookconfigurations"],
    );
    checked.assert("pods", "", "unknown", &["list namespaces"]);

    // Permissions listed in the documentation, except the one to create pods.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cli-live.md")).unwrap();
    let (_, yaml) = page.split_once("```yaml\n").unwrap();
    let (yaml, _) = yaml.split_once("```").unwrap();
    let rules: Value = serde_yaml::from_str(yaml).unwrap();
    let mut fewer = rules.clone();
    fewer["rules"]
        .as_array_mut()
        .unwrap()
        .retain(|rule| !rule["verbs"].as_array().unwrap().contains(&json!("create")));
    assert_ne!(fewer, rules);
    grant(cluster, "auditor", &fewer["rules"]);
    // The API server applies permissions with a delay.
    let checked = eventually("the permissions are granted", async || {
        let checked = check_as(&path, &[]).await;
        let is_granted = checked.of("registration", "mutate").0 == "ok"
            && checked.report["checks"].to_string().contains("stale-chains");
        if is_granted { Ok(checked) } else { Err(checked.report) }
    })
    .await;
    checked.assert("reachable", "", "unknown", &["create pods in namespace shop"]);
    checked.assert("pods-without-chain", "", "ok", &["1 have the current chain"]);
    grant(cluster, "auditor", &rules["rules"]);
    let checked = eventually("the permissions are granted", async || {
        let checked = check_as(&path, &[]).await;
        let mut checks = checked.report["checks"].as_array().unwrap().iter();
        let is_granted = checks.all(|it| it["missingPermission"].is_null());
        if is_granted { Ok(checked) } else { Err(checked.report) }
    })
    .await;
    checked.assert("reachable", "", "ok", &[]);
}

#[tokio::test]
async fn settings_are_read_from_the_deployment() {
    let cluster = Cluster::builder().start().await.unwrap();
    crate::manifests::install(&cluster, &[]);
    let cluster = prepare(cluster).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "lucid-system");
    let checked = check(&cluster).await;
    checked.assert("operator", "", "failed", &["0 of 2 replicas ready", "describe pods"]);
    let running = operator(&cluster, |it| it.env("LUCID_CHAIN", "toxicity")).await;
    let tell = async |variables: Value| {
        let container = json!({"name": "lucid-operator", "env": variables});
        let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        deployments.patch("lucid-operator", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    };
    let status = json!({"status": {"replicas": 2, "readyReplicas": 2}});
    deployments.patch_status("lucid-operator", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let url = json!({"name": "LUCID_WEBHOOK_URL", "value": running.url()});
    tell(json!([url, {"name": "LUCID_CHAIN", "value": "toxicity"}, {"name": "LUCID_ALLOW_SKIP", "value": "true"}])).await;
    create(&cluster, "shop", &secured("web")).await.stored().unwrap();
    let checked = check(&cluster).await;
    assert_eq!(checked.status, Some(0), "{:#}", checked.report);
    checked.assert("operator", "", "ok", &["2 of 2 replicas ready", "ghcr.io/lucid/lucid-operator:"]);
    checked.assert("registration", "mutate", "ok", &[]);
    checked.assert("pods-without-chain", "", "ok", &["1 have the current chain"]);

    // Changed settings, as before a roll-out: registration and chains are still the previous ones.
    tell(json!([{"name": "LUCID_FAILURE_POLICY", "value": "Ignore"}, {"name": "LUCID_CHAIN", "value": "injection"}])).await;
    let checked = check(&cluster).await;
    checked.assert(
        "registration",
        "mutate",
        "failed",
        &["failurePolicy is \\\"Fail\\\", should be \\\"Ignore\\\""],
    );
    let missing = "lucid-injection-auditor is missing, a new part of the chain; lucid-toxicity-auditor is no longer part of the chain";
    checked.assert("stale-chains", "", "failed", &[missing]);
    checked.assert("reachable", "", "failed", &["an unexpected chain"]);
}

#[tokio::test]
async fn many_pods_are_listed_in_pages_and_reported_in_one_line() {
    const PODS: usize = 510;
    let cluster = cluster().await;
    let each = futures::stream::iter(0..PODS).map(|number| {
        let cluster = &cluster;
        async move { create(cluster, "shop", &secured(&format!("web-{number}"))).await.stored().unwrap() }
    });
    each.buffer_unordered(20).for_each(async |_| ()).await;
    let checked = check(&cluster).await;
    assert_eq!(checked.status, Some(1));
    checked.assert("pods-without-chain", "", "failed", &["have none: 510", "the webhook is not registered"]);
    let found =
        checked.report["checks"].as_array().unwrap().iter().find(|it| it["check"] == "pods-without-chain");
    assert_eq!(found.unwrap()["pods"].as_array().unwrap().len(), 1, "{found:?}");
}

#[tokio::test]
async fn unreachable_clusters_and_invalid_options_exit_with_2() {
    let ran = run(Path::new("/nonexistent"), &[]).await;
    assert_eq!(ran.status, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("failed to reach the API server"), "{ran:?}");
    let ran = run(Path::new("/nonexistent"), &["-o", "xml"]).await;
    assert_eq!(ran.status, Some(2), "{ran:?}");
}
