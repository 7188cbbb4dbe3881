//! Renewals by a real cert-manager while pods are created.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use lucid_e2e::{AtomicWriter, ClusterExt as _, Operator, can_use_namespaces, eventually};
use lucid_testbed::Cluster;
use serde::Deserialize;
use serde_json::{Value, json};

use super::SETTLE;
use crate::common::{
    GUARDRAILS, assert_injected, get, has_cert_manager, mutating_webhooks, prepare, until_injected,
};
use crate::traffic::Traffic;

/// Field manager of each injector.
const CAINJECTOR: &str = "cert-manager-cainjector";
const OURS: &str = "lucid-cainjector";
const SERVICE: &str = "lucid-operator-webhook.lucid-system.svc";
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/cert-manager.yaml");
/// Certificate lifetime: the shortest that leaves time for the checks before the renewal.
///
/// cert-manager's webhook requires at least an hour, and a `renewBefore` from five minutes to just under the duration. An hour
/// with a renewal 20 s after its begin needs no manual trigger.
const DURATION: &str = "1h";
const RENEW_BEFORE: &str = "59m40s";

/// Update interval of the volume. A kubelet takes up to two minutes.
const SYNC: Duration = Duration::from_millis(200);

#[tokio::test]
async fn renewal_in_a_volume_does_not_deny_pods() {
    renewal("lucid-ca-issuer", true, CAINJECTOR).await;
}

/// With a self-signed issuer each renewal is a new authority, which clients must trust before the certificate is served.
#[tokio::test]
async fn renewal_of_certificate_and_authority_does_not_deny_pods() {
    renewal("lucid-selfsigned-issuer", false, CAINJECTOR).await;
}

#[tokio::test]
async fn renewal_with_our_injector_does_not_deny_pods() {
    renewal("lucid-selfsigned-issuer", false, OURS).await;
}

#[tokio::test]
async fn a_certificate_for_the_shorter_service_selects_that_service() {
    if !can_use_namespaces() || !has_cert_manager() {
        return;
    }
    let builder = Cluster::builder().cert_manager().cainjector().webhooks_by_service();
    let cluster = prepare(builder.start().await.unwrap()).await;
    let builder = Operator::builder(&cluster).by_service().env("LUCID_CERTIFICATES", "cert-manager");
    let mut operator = builder.flag("--trust-settle", SETTLE).spawn().unwrap();
    // Only the named Service has endpoints.
    cluster.expose_service("lucid-system", "lucid-operator", &[operator.port()]).await.unwrap();
    apply_changed(&cluster, |spec| {
        let names = ["lucid-operator", "lucid-operator.lucid-system", "lucid-operator.lucid-system.svc"];
        spec["dnsNames"] = json!(names);
    })
    .await;
    operator.ready().await.unwrap();
    // The API server still calls the Service of the first registration for a moment.
    until_injected(&cluster, "shop", "web", GUARDRAILS).await;
    let service =
        async || mutating_webhooks(&cluster, "lucid-operator").await.remove(0).client_config.service;
    assert_eq!(service().await.unwrap().name, "lucid-operator");
    let warning = "the certificate is not valid for Service lucid-operator-webhook";
    super::logged(&operator, warning).await;

    operator.restart().await.unwrap();
    assert_eq!(service().await.unwrap().name, "lucid-operator");
    let all = ["lucid-operator.lucid-system.svc", SERVICE];
    cluster.expose_service("lucid-system", "lucid-operator-webhook", &[operator.port()]).await.unwrap();
    apply_changed(&cluster, |spec| spec["dnsNames"] = json!(all)).await;
    eventually("it is called by its own Service", async || {
        service().await.unwrap().name == "lucid-operator-webhook"
    })
    .await;
    until_injected(&cluster, "shop", "web-2", GUARDRAILS).await;
}

/// The bundle of an external Secret, which the operator's registration requests.
#[tokio::test]
async fn injectors_publish_the_bundles_of_requested_sources() {
    for injector in [CAINJECTOR, OURS] {
        if injector == CAINJECTOR && !has_cert_manager() {
            continue;
        }
        let builder = Cluster::builder();
        let builder = if injector == CAINJECTOR { builder.cert_manager().cainjector() } else { builder };
        let cluster = prepare(builder.start().await.unwrap()).await;
        let _ours = (injector == OURS).then(|| super::injector(&cluster));
        let first = super::Authority::new("first");
        let files = first.serving(cluster.host_address()).files(Some(&first.certificate));
        super::write_secret(&cluster, files).await;
        let allowed =
            json!({"metadata": {"annotations": {"cert-manager.io/allow-direct-injection": "true"}}});
        let patch = Patch::Merge(allowed);
        secrets(&cluster).patch("lucid-operator-tls", &PatchParams::default(), &patch).await.unwrap();
        let secret = "inject-ca-from-secret=lucid-system/lucid-operator-tls";
        let builder = Operator::builder(&cluster).env("LUCID_CERTIFICATES", "secret");
        let builder = builder.flag("--trust-settle", SETTLE).flag("--inject-ca", secret);
        let _operator = builder.start().await.unwrap();
        assert_injected(&cluster, "web", GUARDRAILS).await;
        bundle_is_of(injector, &cluster).await;
    }
}

/// A certificate by the API server's authority, whose bundle the operator's registration requests.
#[tokio::test]
async fn injectors_publish_the_ca_of_the_api_server() {
    if !can_use_namespaces() {
        return;
    }
    for injector in [CAINJECTOR, OURS] {
        if injector == CAINJECTOR && !has_cert_manager() {
            continue;
        }
        let builder = Cluster::builder().webhooks_by_service();
        let builder = if injector == CAINJECTOR { builder.cert_manager().cainjector() } else { builder };
        let cluster = prepare(builder.start().await.unwrap()).await;
        let _ours = (injector == OURS).then(|| super::injector(&cluster));
        let authority = super::Authority::of(&cluster);
        let pair = authority.issue("lucid", vec![SERVICE.to_owned()]);
        super::write_secret(&cluster, pair.files(Some(&authority.certificate))).await;
        let builder = Operator::builder(&cluster).by_service().env("LUCID_CERTIFICATES", "secret");
        let builder = builder.flag("--trust-settle", SETTLE).flag("--inject-ca", "inject-apiserver-ca=true");
        let mut operator = builder.spawn().unwrap();
        cluster.expose_service("lucid-system", "lucid-operator-webhook", &[operator.port()]).await.unwrap();
        operator.ready().await.unwrap();
        assert_injected(&cluster, "web", GUARDRAILS).await;
        bundle_is_of(injector, &cluster).await;
    }
}

/// Tests a renewal by one of cert-manager's issuers, mounted or not, with the given injector of the bundle.
async fn renewal(issuer: &str, mounted: bool, injector: &str) {
    if !can_use_namespaces() || !has_cert_manager() {
        return;
    }
    let builder = Cluster::builder().cert_manager().webhooks_by_service();
    let builder = if injector == CAINJECTOR { builder.cainjector() } else { builder };
    let cluster = prepare(builder.start().await.unwrap()).await;
    let _ours = (injector == OURS).then(|| super::injector(&cluster));
    let folder = tempfile::tempdir().unwrap();
    let mut builder = Operator::builder(&cluster).by_service().env("LUCID_CERTIFICATES", "cert-manager");
    builder = builder.flag("--trust-settle", SETTLE).flag("--webhook-timeout-seconds", "30");
    if mounted {
        builder = builder.env("LUCID_TLS_DIRECTORY", folder.path().to_str().unwrap());
        tokio::spawn(mount(secrets(&cluster), AtomicWriter::new(folder.path())));
    }
    let mut operator = builder.spawn().unwrap();
    cluster.expose_service("lucid-system", "lucid-operator-webhook", &[operator.port()]).await.unwrap();
    apply(&cluster, issuer).await;
    operator.ready().await.unwrap();
    assert_injected(&cluster, "web", GUARDRAILS).await;

    // A renewal may be in progress.
    let before =
        eventually("a trusted certificate is served", async || served(&cluster, &operator).await).await;
    let traffic = Traffic::of_secured_pods(&cluster);
    eventually("the renewed certificate is served", async || {
        served(&cluster, &operator).await.is_some_and(|now| now != before)
    })
    .await;
    traffic.end().await;
    assert_eq!(get(&operator, "/readyz").await.0, 200);
    bundle_is_of(injector, &cluster).await;
}

fn secrets(cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(cluster.client(), "lucid-system")
}

/// Keeps a volume in sync with the Secret, forever.
async fn mount(secrets: Api<Secret>, volume: AtomicWriter) {
    loop {
        if let Ok(Some(Secret { data: Some(data), .. })) = secrets.get_opt("lucid-operator-tls").await {
            volume.write(&data.into_iter().map(|(name, bytes)| (name, bytes.0)).collect()).unwrap();
        }
        tokio::time::sleep(SYNC).await;
    }
}

/// Applies the manifest of deploy/, with a Certificate that is renewed soon.
async fn apply(cluster: &Cluster, issuer: &str) {
    apply_changed(cluster, |spec| {
        spec["duration"] = json!(DURATION);
        spec["renewBefore"] = json!(RENEW_BEFORE);
        spec["issuerRef"]["name"] = json!(issuer);
    })
    .await;
}

/// Applies the manifest of deploy/, with a change of the Certificate.
async fn apply_changed(cluster: &Cluster, change: impl Fn(&mut Value)) {
    // The namespace of Secrets of ClusterIssuers.
    cluster.create_namespace("cert-manager", &[]).await.unwrap();
    let text = std::fs::read_to_string(Path::new(MANIFEST)).unwrap();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let mut object: Value = Value::deserialize(document).unwrap();
        if object["metadata"]["name"] == "lucid-operator-cert" {
            change(&mut object["spec"]);
        }
        let gvk = GroupVersionKind::gvk("cert-manager.io", "v1", object["kind"].as_str().unwrap());
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(cluster.client(), namespace, &resource),
            None => Api::all_with(cluster.client(), &resource),
        };
        api.patch(&name, &PatchParams::apply("kubectl"), &Patch::Apply(object)).await.unwrap();
    }
}

/// Certificate served to a client that trusts the registered CA bundle, under the registered name.
async fn served(cluster: &Cluster, operator: &Operator) -> Option<Vec<u8>> {
    let bundle = mutating_webhooks(cluster, "lucid-operator").await.remove(0).client_config.ca_bundle?;
    let client =
        reqwest::Client::builder().tls_certs_only(reqwest::Certificate::from_pem_bundle(&bundle.0).unwrap());
    let client = client.resolve(SERVICE, (cluster.host_address(), operator.port()).into());
    let client = client.no_proxy().tls_info(true).build().unwrap();
    let response = client.get(format!("https://{SERVICE}/mutate")).send().await.ok()?;
    response.extensions().get::<reqwest::tls::TlsInfo>()?.peer_certificate().map(<[u8]>::to_vec)
}

async fn bundle_is_of(injector: &str, cluster: &Cluster) {
    let api: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let found = api.get("lucid-operator").await.unwrap();
    let of_bundle = found.managed_fields().iter().filter(|entry| {
        serde_json::to_string(&entry.fields_v1).is_ok_and(|fields| fields.contains("f:caBundle"))
    });
    let managers: Vec<_> = of_bundle.filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(managers, [injector]);
    // The injector follows a renewal of the Secret.
    eventually("each bundle contains the CA of the Secret", async || {
        let mut data = secrets(cluster).get("lucid-operator-tls").await.unwrap().data.unwrap();
        let ca = String::from_utf8(data.remove("ca.crt").unwrap().0).unwrap();
        let webhooks = mutating_webhooks(cluster, "lucid-operator").await;
        webhooks.into_iter().all(|webhook| {
            let bundle = webhook.client_config.ca_bundle.unwrap().0;
            String::from_utf8(bundle).unwrap().contains(ca.trim())
        })
    })
    .await;
}
