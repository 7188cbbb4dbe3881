//! Annotations that cannot be honored.

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use lucid_certs::TrustBundle;
use lucid_e2e::eventually;
use serde_json::{Value, json};

use super::{
    object::{ALLOWED, FROM_CERTIFICATE, FROM_SECRET, OPENSHIFT, Object},
    site::{Site, ca},
};
use crate::common::{DAY, objects::Kind};

pub(super) async fn a_secret_must_allow_direct_injection(site: &Site, ca: &TrustBundle) {
    let annotation = "cert-manager.io/allow-direct-injection";
    for (index, annotation) in [(annotation, "false"), ("a", "b")].into_iter().enumerate() {
        let word = format!("private{index}");
        site.put_secret("web", &word, annotation, &ca.to_pem()).await;
        let object =
            Object::create(site, Kind::Mutating, &word, &[(FROM_SECRET, &format!("web/{word}"))]).await;
        let note = format!("Secret web/{word} does not exist, or lacks the annotation");
        site.wait_for_note(&object, &note).await;
        assert_eq!(object.held(&object.read().await), ["", ""]);
        site.put_secret("web", &word, ALLOWED, &ca.to_pem()).await;
        object.wait_for(ca).await;
    }
}

pub(super) async fn problems_are_reported_once_until_resolved(site: &Site) {
    let malformed =
        Object::create(site, Kind::Conversion, "malformed", &[(FROM_SECRET, "no-namespace")]).await;
    site.wait_for_note(&malformed, "expected NAMESPACE/NAME, found \"no-namespace\"").await;
    // A malformed first annotation takes precedence over a valid second one, as in cert-manager.
    malformed.annotate(FROM_CERTIFICATE, Some("web/serving")).await;

    let config_map = Object::create(site, Kind::ConfigMap, "events-are-beside", &[(OPENSHIFT, "True")]).await;
    let missing = Object::create(site, Kind::Validating, "missing", &[(FROM_SECRET, "web/missing")]).await;
    // The same message as for an existing Secret that does not allow injection.
    let note = "Secret web/missing does not exist, or lacks the annotation cert-manager.io/allow-direct-injection: \"true\"";
    site.wait_for_note(&missing, note).await;
    for change in ["1", "2", "3"] {
        missing.annotate("unrelated", Some(change)).await;
    }
    let ca = ca(DAY);
    site.put_secret("web", "missing", ALLOWED, &ca.to_pem()).await;
    missing.wait_for(&ca).await;
    assert_eq!(site.notes(&missing).await, [note]);
    assert_eq!(malformed.held(&malformed.read().await), [""]);

    let secrets: Api<Secret> = Api::namespaced(site.admin.clone(), "web");
    secrets.delete("missing", &Default::default()).await.unwrap();
    eventually("second event", async || site.notes(&missing).await.len() == 2).await;
    assert_eq!(missing.held(&missing.read().await), [ca.to_pem(), ca.to_pem()], "it is left alone");

    let secrets: Api<Secret> = Api::namespaced(site.admin.clone(), "lucid-system");
    secrets.delete("lucid-operator-ca", &Default::default()).await.unwrap();
    site.wait_for_note(&config_map, "Secret lucid-system/lucid-operator-ca does not exist").await;
}

pub(super) async fn an_unusable_ca_is_not_injected(site: &Site, ca: &TrustBundle) {
    let expired = self::ca(400 * DAY).to_pem();
    let cases = [
        ("expired", expired.as_str(), "key ca.crt of Secret web/expired holds only expired certificates"),
        ("no-pem", "not PEM", "key ca.crt of Secret web/no-pem is not a trust bundle"),
        ("empty", "", "key ca.crt of Secret web/empty is not a trust bundle"),
    ];
    for (word, content, note) in cases {
        site.put_secret("web", word, ALLOWED, content).await;
        let trusts =
            |service: &mut Value| service["spec"]["caBundle"] = json!(BASE64_STANDARD.encode(ca.to_pem()));
        let from = format!("web/{word}");
        let object =
            Object::create_changed(site, Kind::ApiService, word, &[(FROM_SECRET, &from)], trusts).await;
        site.wait_for_note(&object, note).await;
        assert_eq!(object.held(&object.read().await), [ca.to_pem()]);
    }
    site.put_secret_key("web", "leaf-only", ALLOWED, ("tls.crt", &ca.to_pem())).await;
    let object = Object::create(site, Kind::ApiService, "leaf-only", &[(FROM_SECRET, "web/leaf-only")]).await;
    site.wait_for_note(&object, "Secret web/leaf-only has no key ca.crt").await;
}
