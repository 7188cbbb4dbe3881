//! Objects with annotations that request a CA.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use lucid_certs::TrustBundle;
use lucid_e2e::eventually;
use serde_json::{Value, json};

use super::site::Site;
use crate::common::objects::Kind;

pub(super) const FROM_SECRET: &str = "cert-manager.io/inject-ca-from-secret";
pub(super) const FROM_CERTIFICATE: &str = "cert-manager.io/inject-ca-from";
pub(super) const FROM_API_SERVER: &str = "cert-manager.io/inject-apiserver-ca";
pub(super) const OPENSHIFT: &str = "service.beta.openshift.io/inject-cabundle";
pub(super) const OPENSHIFT_ALPHA: &str = "service.alpha.openshift.io/inject-cabundle";
pub(super) const ALLOWED: (&str, &str) = ("cert-manager.io/allow-direct-injection", "true");
pub(super) const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";

/// Kinds that cert-manager supports.
pub(super) const FOUR: [Kind; 4] = [Kind::Mutating, Kind::Validating, Kind::Conversion, Kind::ApiService];

#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) api: Api<DynamicObject>,
}

impl Object {
    pub(super) async fn create(site: &Site, kind: Kind, word: &str, annotations: &[(&str, &str)]) -> Self {
        Self::create_changed(site, kind, word, annotations, |_| {}).await
    }

    pub(super) async fn create_changed(
        site: &Site,
        kind: Kind,
        word: &str,
        annotations: &[(&str, &str)],
        change: impl FnOnce(&mut Value),
    ) -> Self {
        let (name, api) = (kind.object_name(word), kind.api(&site.admin, "web"));
        let mut body = kind.manifest(&name);
        let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
        body["metadata"]["annotations"] = json!(annotations);
        change(&mut body);
        let object: DynamicObject = serde_json::from_value(body).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
        Self { kind, name, api }
    }

    /// Refers to an existing cluster-scoped object.
    pub(super) fn existing(site: &Site, kind: Kind, word: &str) -> Self {
        Self { kind, name: kind.object_name(word), api: kind.api(&site.admin, "web") }
    }

    pub(super) async fn read(&self) -> DynamicObject {
        self.api.get(&self.name).await.unwrap()
    }

    pub(super) fn held(&self, object: &DynamicObject) -> Vec<String> {
        let text = |pointer: &&str| object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let decode = |text: &str| match self.kind {
            Kind::ConfigMap => text.to_owned(),
            _ => String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap(),
        };
        self.kind.pointers().iter().map(text).map(decode).collect()
    }

    pub(super) async fn wait_for(&self, bundle: &TrustBundle) {
        let fingerprints: Vec<_> = bundle.validities().map(|(it, _)| it).collect();
        let what = format!("bundle {fingerprints:?} in {:?} {}", self.kind, self.name);
        let pem = bundle.to_pem();
        eventually(&what, async || self.held(&self.read().await).iter().all(|held| *held == pem)).await;
    }

    pub(super) async fn merge(&self, patch: Value) -> DynamicObject {
        self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    pub(super) async fn annotate(&self, key: &str, value: Option<&str>) -> DynamicObject {
        self.merge(json!({ "metadata": { "annotations": { key: value } } })).await
    }

    pub(super) async fn overwrite(&self, value: &str) -> DynamicObject {
        let patch = json!([{ "op": "add", "path": self.kind.pointers()[0], "value": value }]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
        self.api.patch(&self.name, &PatchParams::default(), &patch).await.unwrap()
    }
}

pub(super) fn is_written_by_us(object: &DynamicObject) -> bool {
    object.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some("lucid-cainjector"))
}
