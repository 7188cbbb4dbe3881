//! Objects with annotations that request a CA.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use lucid_certs::{TrustBundle, injector::FIELD_MANAGER};
use serde_json::{Value, json};

use super::site::{Site, until};

pub(super) const FROM_SECRET: &str = "cert-manager.io/inject-ca-from-secret";
pub(super) const FROM_CERTIFICATE: &str = "cert-manager.io/inject-ca-from";
pub(super) const FROM_API_SERVER: &str = "cert-manager.io/inject-apiserver-ca";
pub(super) const OPENSHIFT: &str = "service.beta.openshift.io/inject-cabundle";
pub(super) const OPENSHIFT_ALPHA: &str = "service.alpha.openshift.io/inject-cabundle";
pub(super) const ALLOWED: (&str, &str) = ("cert-manager.io/allow-direct-injection", "true");
pub(super) const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";

#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) group: &'static str,
    pub(super) plural: &'static str,
    /// JSON pointers of the bundles.
    pub(super) pointers: &'static [&'static str],
}

pub(super) const WEBHOOKS: &[&str] =
    &["/webhooks/0/clientConfig/caBundle", "/webhooks/1/clientConfig/caBundle"];
pub(super) const MUTATING: Kind = Kind {
    name: "MutatingWebhookConfiguration",
    group: "admissionregistration.k8s.io",
    plural: "mutatingwebhookconfigurations",
    pointers: WEBHOOKS,
};
pub(super) const VALIDATING: Kind = Kind {
    name: "ValidatingWebhookConfiguration",
    group: "admissionregistration.k8s.io",
    plural: "validatingwebhookconfigurations",
    pointers: WEBHOOKS,
};
pub(super) const CRD: Kind = Kind {
    name: "CustomResourceDefinition",
    group: "apiextensions.k8s.io",
    plural: "customresourcedefinitions",
    pointers: &["/spec/conversion/webhook/clientConfig/caBundle"],
};
pub(super) const API_SERVICE: Kind = Kind {
    name: "APIService",
    group: "apiregistration.k8s.io",
    plural: "apiservices",
    pointers: &["/spec/caBundle"],
};
pub(super) const CONFIG_MAP: Kind =
    Kind { name: "ConfigMap", group: "", plural: "configmaps", pointers: &["/data/service-ca.crt"] };
pub(super) const FOUR: [Kind; 4] = [MUTATING, VALIDATING, CRD, API_SERVICE];

impl Kind {
    pub(super) fn api(self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(self.group, "v1", self.name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, self.plural);
        match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }

    /// Returns the name and manifest of an object without a bundle.
    pub(super) fn body(self, word: &str) -> (String, Value) {
        let service = json!({ "namespace": "web", "name": "web" });
        let webhook = |name: &str| {
            json!({
                "name": format!("{name}.{word}.example.com"), "clientConfig": { "service": service },
                "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
            })
        };
        match self.name {
            "CustomResourceDefinition" => (
                format!("{word}s.example.com"),
                json!({ "spec": {
                    "group": "example.com", "scope": "Namespaced",
                    "names": { "kind": word, "plural": format!("{word}s"), "singular": word },
                    "versions": [{ "name": "v1", "served": true, "storage": true, "schema": {
                        "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    } }],
                    "conversion": { "strategy": "Webhook", "webhook": {
                        "conversionReviewVersions": ["v1"], "clientConfig": { "service": service },
                    } },
                } }),
            ),
            "APIService" => (
                format!("v1.{word}.example.org"),
                json!({ "spec": {
                    "group": format!("{word}.example.org"), "version": "v1", "service": service,
                    "groupPriorityMinimum": 100, "versionPriority": 100,
                } }),
            ),
            "ConfigMap" => (word.to_owned(), json!({ "data": { "other": "key" } })),
            _ => (word.to_owned(), json!({ "webhooks": [webhook("first"), webhook("second")] })),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) kind: Kind,
    pub(super) namespace: Option<&'static str>,
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
        let namespace = (kind.name == "ConfigMap").then_some("web");
        let (name, mut body) = kind.body(word);
        let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
        body["metadata"] = json!({ "name": name, "annotations": annotations });
        change(&mut body);
        let object: DynamicObject = serde_json::from_value(body).unwrap();
        let api = kind.api(&site.admin, namespace);
        api.create(&PostParams::default(), &object).await.unwrap();
        Self { kind, namespace, name, api }
    }

    /// Refers to an existing cluster-scoped object.
    pub(super) fn existing(site: &Site, kind: Kind, word: &str) -> Self {
        let (name, _) = kind.body(word);
        Self { kind, namespace: None, name, api: kind.api(&site.admin, None) }
    }

    pub(super) async fn read(&self) -> DynamicObject {
        self.api.get(&self.name).await.unwrap()
    }

    /// Returns the content of each bundle field.
    pub(super) fn held(&self, object: &DynamicObject) -> Vec<String> {
        let text = |pointer: &&str| object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let decode = |text: &str| match self.kind.name {
            "ConfigMap" => text.to_owned(),
            _ => String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap(),
        };
        self.kind.pointers.iter().map(text).map(decode).collect()
    }

    pub(super) async fn wait_for(&self, bundle: &TrustBundle) {
        let fingerprints: Vec<_> = bundle.fingerprints().collect();
        let what = format!("bundle {fingerprints:?} in {} {}", self.kind.name, self.name);
        let pem = bundle.to_pem();
        until(&what, async || self.held(&self.read().await).iter().all(|held| *held == pem)).await;
    }

    pub(super) async fn merge(&self, patch: Value) -> DynamicObject {
        self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    pub(super) async fn annotate(&self, key: &str, value: Option<&str>) -> DynamicObject {
        self.merge(json!({ "metadata": { "annotations": { key: value } } })).await
    }

    /// Overwrites the first bundle field.
    pub(super) async fn overwrite(&self, value: &str) -> DynamicObject {
        let patch = json!([{ "op": "add", "path": self.kind.pointers[0], "value": value }]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
        self.api.patch(&self.name, &PatchParams::default(), &patch).await.unwrap()
    }
}

pub(super) fn is_written_by_us(object: &DynamicObject) -> bool {
    object.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
}
