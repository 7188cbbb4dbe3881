//! Clusters with cert-manager.

use k8s_openapi::api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use lucid_e2e::eventually;
use lucid_testbed::Cluster;
use serde_json::{Value, json};

async fn create(cluster: &Cluster, kind: &str, name: &str, spec: Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", kind));
    let api = Api::<DynamicObject>::default_namespaced_with(cluster.client(), &resource);
    let object = DynamicObject::new(name, &resource).data(json!({ "spec": spec }));
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test]
async fn certificates_get_secrets_and_their_ca_is_injected() {
    let cluster = Cluster::builder().cert_manager().cainjector().start().await.unwrap();
    let configuration = json!({
        "metadata": {"name": "hook", "annotations": {"cert-manager.io/inject-ca-from": "default/hook"}},
        "webhooks": [{
            "name": "hook.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"service": {"namespace": "hooks", "name": "hook"}},
        }],
    });
    let configurations = Api::<ValidatingWebhookConfiguration>::all(cluster.client());
    let configuration = serde_json::from_value(configuration).unwrap();
    configurations.create(&PostParams::default(), &configuration).await.unwrap();

    create(&cluster, "Issuer", "self-signed", json!({"selfSigned": {}})).await;
    let spec = json!({
        "secretName": "hook-tls", "isCA": true, "commonName": "hook", "dnsNames": ["hook.hooks.svc"],
        "privateKey": {"algorithm": "ECDSA"}, "issuerRef": {"name": "self-signed"},
    });
    create(&cluster, "Certificate", "hook", spec).await;

    let secrets = Api::<Secret>::default_namespaced(cluster.client());
    let secret = eventually("Secret", async || secrets.get_opt("hook-tls").await.unwrap()).await;
    let injected = eventually("caBundle", async || {
        let found = configurations.get("hook").await.unwrap();
        found.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.is_some().then_some(found)
    })
    .await;
    let bundle = injected.webhooks.as_ref().unwrap()[0].client_config.ca_bundle.clone();
    assert_eq!(bundle, secret.data.unwrap().remove("ca.crt"));
    let managers: Vec<_> =
        injected.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert!(managers.contains(&"cert-manager-cainjector"), "{managers:?}");
}
