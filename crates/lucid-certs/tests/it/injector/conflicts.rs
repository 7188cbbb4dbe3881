//! Conflicting injectors.

use lucid_e2e::ClusterExt as _;
use std::time::{Duration, SystemTime};

use kube::api::{Patch, PatchParams};
use lucid_certs::{TrustBundle, injector::CaInjector};
use serde_json::json;

use super::{
    object::{ALLOWED, FROM_SECRET, Object, is_written_by_us},
    site::{Site, ca, namespaced, start},
};
use crate::common::{DAY, TIMEOUT, now, objects::Kind};

const LEASE: &str = "cert-manager-cainjector-leader-election";

#[tokio::test(flavor = "multi_thread")]
async fn an_injector_does_not_start_beside_a_conflicting_one() {
    let site = Site::start().await;
    let ca = ca(DAY);
    site.put_secret("web", "ca", ALLOWED, &ca.to_pem()).await;

    put_lease(&site, "kube-system", "cainjector-0", &micro_time(0)).await;
    let held = "Lease kube-system/cert-manager-cainjector-leader-election (held by cainjector-0)";
    assert_eq!(refusal(&site).await, cert_manager(held));

    put_lease(&site, "kube-system", "cainjector-0", &micro_time(3600)).await;
    deploy(&site, "cert-manager", "cert-manager-cainjector", 2).await;
    let ready = "Deployment cert-manager/cert-manager-cainjector (2 ready)";
    assert_eq!(refusal(&site).await, cert_manager(ready));

    let beside = Object::create(&site, Kind::Mutating, "beside", &[(FROM_SECRET, "web/ca")]).await;
    let running = start(site.injector().await.with_cert_manager_namespaces([""; 0])).await;
    beside.wait_for(&ca).await;
    drop(running);

    // Without a ready pod and with an expired Lease, cert-manager is not running.
    set_ready(&site, "cert-manager", "cert-manager-cainjector", 0).await;
    site.cluster.create_namespace("openshift-service-ca", &[]).await.unwrap();
    deploy(&site, "openshift-service-ca", "service-ca", 1).await;
    let expected = "failed to start injecting CAs beside a running service CA of OpenShift: Deployment \
                    openshift-service-ca/service-ca (1 ready)";
    assert_eq!(refusal(&site).await, expected);
    drop(start(CaInjector::new(site.restricted.clone())).await);
    set_ready(&site, "openshift-service-ca", "service-ca", 0).await;

    a_conflicting_injector_pauses_writes(&site, &ca).await;
}

async fn a_conflicting_injector_pauses_writes(site: &Site, ca: &TrustBundle) {
    let injector = site.injector().await;
    let mut ready = injector.ready();
    let _running = start(injector).await;
    let from = [(FROM_SECRET, "web/ca")];
    let object = Object::create(site, Kind::Mutating, "given-way", &from).await;
    object.wait_for(ca).await;
    set_ready(site, "cert-manager", "cert-manager-cainjector", 1).await;
    tokio::time::timeout(TIMEOUT, ready.wait_for(|ready| !ready)).await.unwrap().unwrap();
    object.overwrite("").await;
    let second = Object::create(site, Kind::Validating, "given-way", &from).await;

    // Writes would arrive within milliseconds.
    let healed = tokio::time::timeout(Duration::from_secs(1), object.wait_for(ca)).await;
    assert!(healed.is_err() && !is_written_by_us(&second.read().await));

    set_ready(site, "cert-manager", "cert-manager-cainjector", 0).await;
    tokio::time::timeout(TIMEOUT, ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
    object.wait_for(ca).await;
    second.wait_for(ca).await;
}

fn cert_manager(evidence: &str) -> String {
    format!("failed to start injecting CAs beside a running cainjector of cert-manager: {evidence}")
}

async fn refusal(site: &Site) -> String {
    let running = site.injector().await.run(std::future::pending());
    tokio::time::timeout(TIMEOUT, running).await.unwrap().unwrap_err().to_string()
}

fn micro_time(seconds: u64) -> String {
    let time = now() - Duration::from_secs(seconds);
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let time = jiff::Timestamp::from_second(seconds.try_into().unwrap()).unwrap();
    time.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()
}

async fn put_lease(site: &Site, namespace: &str, holder: &str, renewed: &str) {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": LEASE },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": renewed },
    });
    let leases = namespaced(site, ("coordination.k8s.io", "Lease", "leases"), namespace);
    leases.patch(LEASE, &PatchParams::apply("test"), &Patch::Apply(&lease)).await.unwrap();
}

/// Creates a Deployment with the labels of the official manifests.
async fn deploy(site: &Site, namespace: &str, name: &str, ready: u32) {
    let labels = match name {
        "service-ca" => json!({ "app": "service-ca" }),
        _ => json!({ "app": "cainjector", "app.kubernetes.io/component": "cainjector" }),
    };
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "c", "image": "example.com/c" }] },
            },
        },
    });
    let deployments = namespaced(site, ("apps", "Deployment", "deployments"), namespace);
    deployments.patch(name, &PatchParams::apply("test"), &Patch::Apply(&deployment)).await.unwrap();
    set_ready(site, namespace, name, ready).await;
}

/// Sets the status as the Deployment controller would, which does not run here.
async fn set_ready(site: &Site, namespace: &str, name: &str, ready: u32) {
    let status = json!({ "status": { "replicas": 2, "readyReplicas": ready } });
    let deployments = namespaced(site, ("apps", "Deployment", "deployments"), namespace);
    deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_elsewhere_or_in_the_future_do_not_stop_the_injection() {
    let site = Site::start().await;
    put_lease(&site, "other", "tenant", &micro_time(0)).await;
    deploy(&site, "other", "cert-manager-cainjector", 1).await;
    deploy(&site, "other", "service-ca", 1).await;
    drop(start(site.injector().await).await);

    // In a watched namespace, a Lease renewed in the far future would otherwise count until then.
    put_lease(&site, "kube-system", "tenant", "2999-01-01T00:00:00.000000Z").await;
    drop(start(site.injector().await).await);

    let elsewhere = site.injector().await.with_cert_manager_namespaces(["other"]);
    let running = tokio::time::timeout(TIMEOUT, elsewhere.run(std::future::pending())).await;
    let both = "Deployment other/cert-manager-cainjector (1 ready); a running cainjector of cert-manager: Lease \
                other/cert-manager-cainjector-leader-election (held by tenant)";
    assert_eq!(running.unwrap().unwrap_err().to_string(), cert_manager(both));
}
