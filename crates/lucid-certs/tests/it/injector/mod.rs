//! An injector on a real API server, with exactly the permissions of `deploy/cainjector.yaml`.

mod certificates;
mod conflicts;
mod object;
mod problems;
mod rbac;
mod site;

use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use lucid_certs::TrustBundle;
use lucid_e2e::eventually;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use self::{
    object::{
        ALLOWED, CERTIFICATE_NAME, FOUR, FROM_API_SERVER, FROM_CERTIFICATE, FROM_SECRET, OPENSHIFT,
        OPENSHIFT_ALPHA, Object, is_written_by_us,
    },
    site::{Site, ca, start},
};
use crate::common::{DAY, certificate_pem, metric, objects::Kind};

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_the_manifest_are_sufficient() {
    let site = Site::start().await;
    let ca = ca(DAY);
    site.put_secret("web", "ca", ALLOWED, &ca.to_pem()).await;
    let before = Object::create(&site, Kind::Mutating, "early", &[(FROM_SECRET, "web/ca")]).await;
    let mut registry = Registry::default();
    let _running = start(site.injector().await.with_metrics(&mut registry)).await;
    before.wait_for(&ca).await;

    each_annotation_is_honoured_on_each_kind(&site, &ca).await;
    other_objects_are_not_written(&site, &ca).await;
    up_to_date_objects_are_not_written(&site, &ca, &registry).await;
    let rotated = a_replaced_ca_stays_until_it_expires(&site).await;
    two_injectors_write_as_often_as_one(&site, &rotated, &registry).await;
    each_webhook_keeps_its_additional_certificates(&site, &ca).await;
    removed_and_invalid_bundles_are_restored(&site, &ca).await;
    bundles_without_annotation_are_not_restored(&site, &ca).await;
    problems::a_secret_must_allow_direct_injection(&site, &ca).await;
    problems::problems_are_reported_once_until_resolved(&site).await;
    problems::an_unusable_ca_is_not_injected(&site, &ca).await;
    let settled = certificates::without_certificates_the_secret_is_found_by_annotation(&site).await;
    certificates::certificates_name_their_secret(&site, &settled).await;
}

async fn each_annotation_is_honoured_on_each_kind(site: &Site, ca: &TrustBundle) {
    let own = self::ca(2 * DAY);
    site.put_secret("lucid-system", "lucid-operator-ca", ("a", "b"), &own.to_pem()).await;
    let issued = self::ca(3 * DAY);
    site.put_secret("web", "issued", (CERTIFICATE_NAME, "serving"), &issued.to_pem()).await;
    let certificates = Site::config(&site.cluster).await.root_cert.unwrap();
    let pem: String = certificates.iter().map(|der| certificate_pem(der)).collect();
    let api_server = TrustBundle::from_pem(pem.as_bytes()).unwrap();
    for kind in FOUR {
        let secret = Object::create(site, kind, "secret", &[(FROM_SECRET, "web/ca")]).await;
        let certificate =
            Object::create(site, kind, "certificate", &[(FROM_CERTIFICATE, "web/serving")]).await;
        let server = Object::create(site, kind, "server", &[(FROM_API_SERVER, "true")]).await;
        let openshift = Object::create(site, kind, "openshift", &[(OPENSHIFT, "true")]).await;
        secret.wait_for(ca).await;
        certificate.wait_for(&issued).await;
        server.wait_for(&api_server).await;
        openshift.wait_for(&own).await;
    }
    for (kind, word, annotation) in [
        (Kind::ConfigMap, "beta", OPENSHIFT),
        (Kind::ConfigMap, "alpha", OPENSHIFT_ALPHA),
        (Kind::ApiService, "alpha", OPENSHIFT_ALPHA),
    ] {
        let object = Object::create(site, kind, word, &[(annotation, "true")]).await;
        object.wait_for(&own).await;
        let others: Api<ConfigMap> = Api::namespaced(site.admin.clone(), "web");
        if kind == Kind::ConfigMap {
            assert_eq!(others.get(word).await.unwrap().data.unwrap()["other"], "text", "other keys stay");
        }
    }
}

async fn other_objects_are_not_written(site: &Site, ca: &TrustBundle) {
    let from = [(FROM_SECRET, "web/ca")];
    let mut objects = vec![
        Object::create(site, Kind::Mutating, "silent", &[]).await,
        Object::create(site, Kind::Mutating, "not-true", &[(FROM_API_SERVER, "yes"), (OPENSHIFT, "no")])
            .await,
        Object::create(site, Kind::ConfigMap, "not-openshift", &from).await,
        Object::create(site, Kind::Validating, "alpha-unknown-here", &[(OPENSHIFT_ALPHA, "true")]).await,
    ];
    let none = |crd: &mut Value| crd["spec"]["conversion"] = json!({ "strategy": "None" });
    objects.push(Object::create_changed(site, Kind::Conversion, "unconverted", &from, none).await);
    let local = |service: &mut Value| service["spec"]["service"] = Value::Null;
    objects.push(Object::create_changed(site, Kind::ApiService, "local", &from, local).await);
    let unverified = |service: &mut Value| service["spec"]["insecureSkipTLSVerify"] = json!(true);
    let unverified = Object::create_changed(site, Kind::ApiService, "unverified", &from, unverified).await;
    site.wait_for_note(&unverified, "insecureSkipTLSVerify").await;
    objects.push(unverified);
    // These are seen later, so all earlier objects have been seen.
    for kind in [Kind::Mutating, Kind::Validating, Kind::Conversion, Kind::ApiService] {
        Object::create(site, kind, "later", &from).await.wait_for(ca).await;
    }
    for object in objects {
        assert!(!is_written_by_us(&object.read().await), "{object:?}");
    }
}

/// Number of writes to ValidatingWebhookConfigurations.
fn written(registry: &Registry) -> u64 {
    let labels = "kind=\"ValidatingWebhookConfiguration\",result=\"written\"";
    metric(registry, &format!("cainjector_writes_total{{{labels}}} "))
}

async fn up_to_date_objects_are_not_written(site: &Site, ca: &TrustBundle, registry: &Registry) {
    let before = written(registry);
    let object = Object::create(site, Kind::Validating, "right", &[(FROM_SECRET, "web/ca")]).await;
    object.wait_for(ca).await;
    for change in ["1", "2", "3"] {
        object.annotate("unrelated", Some(change)).await;
    }
    Object::create(site, Kind::Validating, "right-too", &[(FROM_SECRET, "web/ca")]).await.wait_for(ca).await;
    // The counter may be updated after the write is observed.
    eventually("writes counted", async || written(registry) - before >= 2).await;
    assert_eq!(written(registry) - before, 2);

    let read = object.read().await;
    let ours =
        read.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some("lucid-cainjector"));
    let fields = serde_json::to_string(&ours.unwrap().fields_v1).unwrap();
    assert!(fields.contains("f:caBundle") && !fields.contains("f:service"), "only the bundle: {fields}");
}

async fn a_replaced_ca_stays_until_it_expires(site: &Site) -> TrustBundle {
    let [old, new] = [300, 1].map(|days| ca(days * DAY));
    let expired = ca(400 * DAY);
    site.put_secret("web", "rotated", ALLOWED, &old.merge(&expired).to_pem()).await;
    let from = [(FROM_SECRET, "web/rotated")];
    for kind in FOUR {
        Object::create(site, kind, "rotated", &from).await.wait_for(&old).await;
    }
    let stale = Object::create(site, Kind::Validating, "stale", &from).await;
    stale.wait_for(&old).await;
    stale.overwrite(&BASE64_STANDARD.encode(old.merge(&expired).to_pem())).await;
    stale.wait_for(&old).await;

    site.put_secret("web", "rotated", ALLOWED, &new.to_pem()).await;
    let both = old.merge(&new);
    for kind in FOUR {
        Object::existing(site, kind, "rotated").wait_for(&both).await;
    }
    assert_eq!(both.certificates().next(), new.certificates().next(), "the newest stands first");
    stale.wait_for(&both).await;
    both
}

async fn two_injectors_write_as_often_as_one(site: &Site, rotated: &TrustBundle, first: &Registry) {
    let mut second = Registry::default();
    let _running = start(site.injector().await.with_metrics(&mut second)).await;
    let before = written(first);
    let next = ca(Duration::ZERO);
    site.put_secret("web", "rotated", ALLOWED, &next.to_pem()).await;
    for word in ["rotated", "stale"] {
        Object::existing(site, Kind::Validating, word).wait_for(&rotated.merge(&next)).await;
    }
    eventually("write counted", async || written(first) - before + written(&second) >= 2).await;
    assert_eq!(written(first) - before + written(&second), 2);
}

async fn each_webhook_keeps_its_additional_certificates(site: &Site, ca: &TrustBundle) {
    let foreign = self::ca(5 * DAY);
    let trusts = |configuration: &mut Value| {
        let pem = BASE64_STANDARD.encode(foreign.to_pem());
        configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!(pem);
    };
    let object =
        Object::create_changed(site, Kind::Mutating, "mixed", &[(FROM_SECRET, "web/ca")], trusts).await;
    let expected = [ca.merge(&foreign).to_pem(), ca.to_pem()];
    eventually("merged bundles", async || object.held(&object.read().await) == expected).await;
}

async fn removed_and_invalid_bundles_are_restored(site: &Site, ca: &TrustBundle) {
    for kind in FOUR {
        let object = Object::create(site, kind, "healed", &[(FROM_SECRET, "web/ca")]).await;
        object.wait_for(ca).await;
        // The API server rejects an update of a definition from a valid bundle to an invalid one.
        let values: &[&str] = if kind == Kind::Conversion { &[""] } else { &["", "Cg==", "bm90IFBFTQ=="] };
        for value in values {
            let broken = object.overwrite(value).await;
            assert_ne!(object.held(&broken)[0], ca.to_pem());
            object.wait_for(ca).await;
        }
    }
}

async fn bundles_without_annotation_are_not_restored(site: &Site, ca: &TrustBundle) {
    let from = [(FROM_SECRET, "web/ca")];
    let object = Object::create(site, Kind::Mutating, "released", &from).await;
    object.wait_for(ca).await;
    object.annotate(FROM_SECRET, None).await;
    let wiped = object.overwrite("").await;
    Object::create(site, Kind::Mutating, "released-later", &from).await.wait_for(ca).await;
    assert_eq!(object.read().await.resource_version(), wiped.resource_version());
    object.annotate(FROM_SECRET, Some("web/ca")).await;
    object.wait_for(ca).await;
}
