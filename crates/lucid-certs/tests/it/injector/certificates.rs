//! cert-manager's Certificates, and a cluster without them.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
};
use lucid_e2e::eventually;
use serde_json::{Value, json};

use super::{
    object::{CERTIFICATE_NAME, FROM_CERTIFICATE, Object},
    site::{Site, ca},
};
use crate::common::{DAY, objects::Kind};

pub(super) async fn without_certificates_the_secret_is_found_by_annotation(site: &Site) -> Object {
    let object = Object::create(site, Kind::Mutating, "copied", &[(FROM_CERTIFICATE, "web/copied")]).await;
    site.wait_for_note(&object, "this cluster has no kind Certificate, and no Secret in namespace web").await;
    let ca = ca(DAY);
    site.put_secret("other", "copied", (CERTIFICATE_NAME, "copied"), &self::ca(DAY).to_pem()).await;
    site.put_secret("web", "copied-tls", (CERTIFICATE_NAME, "copied"), &ca.to_pem()).await;
    object.wait_for(&ca).await;
    site.put_secret("web", "copied-again", (CERTIFICATE_NAME, "copied"), &ca.to_pem()).await;
    site.wait_for_note(&object, "several Secrets in namespace web").await;
    object
}

pub(super) async fn certificates_name_their_secret(site: &Site, settled: &Object) {
    let marked = ca(6 * DAY);
    site.put_secret("web", "marked", (CERTIFICATE_NAME, "named"), &marked.to_pem()).await;
    let object = Object::create(site, Kind::Validating, "named", &[(FROM_CERTIFICATE, "web/named")]).await;
    object.wait_for(&marked).await;

    let certificates = |crd: &mut Value| {
        crd["metadata"]["name"] = json!("certificates.cert-manager.io");
        crd["spec"]["group"] = json!("cert-manager.io");
        crd["spec"]["names"] =
            json!({ "kind": "Certificate", "plural": "certificates", "singular": "certificate" });
        crd["spec"]["conversion"] = json!({ "strategy": "None" });
    };
    Object::create_changed(site, Kind::Conversion, "certificate", &[], certificates).await;
    site.wait_for_note(&object, "Certificate web/named does not exist").await;
    site.wait_for_note(settled, "Certificate web/copied does not exist").await;

    let gvk = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "certificates");
    let api: Api<DynamicObject> = Api::namespaced_with(site.admin.clone(), "web", &resource);
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": { "name": "named" }, "spec": { "secretName": "strange" },
    });
    let issued = ca(7 * DAY);
    site.put_secret("web", "strange", (CERTIFICATE_NAME, "other"), &issued.to_pem()).await;
    eventually("kind Certificate", async || {
        api.patch("named", &PatchParams::apply("test"), &Patch::Apply(&certificate)).await.is_ok()
    })
    .await;
    site.wait_for_note(
        &object,
        "Secret web/strange of Certificate web/named does not exist, or lacks the annotation",
    )
    .await;
    site.put_secret("web", "strange", (CERTIFICATE_NAME, "named"), &issued.to_pem()).await;
    let both = marked.merge(&issued);
    object.wait_for(&both).await;

    let third = ca(8 * DAY);
    site.put_secret("web", "third", (CERTIFICATE_NAME, "named"), &third.to_pem()).await;
    let patch = Patch::Merge(json!({ "spec": { "secretName": "third" } }));
    api.patch("named", &PatchParams::default(), &patch).await.unwrap();
    object.wait_for(&both.merge(&third)).await;
}
