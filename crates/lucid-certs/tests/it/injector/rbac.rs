//! Injection with access to some Secrets only.

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use serde_json::json;

use super::{
    object::{ALLOWED, CERTIFICATE_NAME, FROM_CERTIFICATE, FROM_SECRET, Object, is_written_by_us},
    site::{Site, bind_secrets, ca, start},
};
use crate::common::{DAY, objects::Kind};

#[tokio::test(flavor = "multi_thread")]
async fn permissions_in_the_configured_namespaces_are_sufficient() {
    let site = Site::start().await;
    let ca = ca(DAY);
    for namespace in ["web", "other"] {
        site.put_secret(namespace, "ca", ALLOWED, &ca.to_pem()).await;
        site.put_secret(namespace, "issued", (CERTIFICATE_NAME, "serving"), &ca.to_pem()).await;
    }
    let bindings: Api<ClusterRoleBinding> = Api::all(site.admin.clone());
    bindings.delete("lucid-cainjector-secrets", &Default::default()).await.unwrap();
    let forbidden = Object::create(&site, Kind::Mutating, "forbidden", &[(FROM_SECRET, "web/ca")]).await;
    let running = start(site.injector().await).await;
    site.wait_for_note(&forbidden, "failed to get Secret web/ca").await;
    drop(running);

    bind_secrets(&site.cluster, "RoleBinding", &json!({ "name": "cas", "namespace": "web" }));
    let _running = start(site.injector().await.with_secret_namespaces(["web"])).await;
    forbidden.wait_for(&ca).await;
    Object::create(&site, Kind::Conversion, "near", &[(FROM_CERTIFICATE, "web/serving")])
        .await
        .wait_for(&ca)
        .await;
    for (word, annotation, name) in
        [("far", FROM_SECRET, "other/ca"), ("away", FROM_CERTIFICATE, "other/serving")]
    {
        let object = Object::create(&site, Kind::Mutating, word, &[(annotation, name)]).await;
        site.wait_for_note(&object, "CAs of namespace other are not allowed, expected one of: web").await;
        assert!(!is_written_by_us(&object.read().await));
    }
}
