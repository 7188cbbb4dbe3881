//! An injector against a real API server, with the rights of `deploy/cainjector.yaml` and no others

use std::{collections::BTreeMap, process::Command, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{ConfigMap, Secret},
        events::v1::Event,
    },
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::GroupVersionKind,
};
use lucid_certs::{
    CertificateAuthority, TrustBundle,
    injector::{ApiServerCa, FIELD_MANAGER, Injector, InjectorError},
};
use lucid_testbed::{Binaries, Cluster, Component};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::common::{DAY, names, now};

const PATIENCE: Duration = Duration::from_secs(60);
const FROM_SECRET: &str = "cert-manager.io/inject-ca-from-secret";
const FROM_CERTIFICATE: &str = "cert-manager.io/inject-ca-from";
const FROM_API_SERVER: &str = "cert-manager.io/inject-apiserver-ca";
const OPENSHIFT: &str = "service.beta.openshift.io/inject-cabundle";
const OPENSHIFT_ALPHA: &str = "service.alpha.openshift.io/inject-cabundle";
const ALLOWED: (&str, &str) = ("cert-manager.io/allow-direct-injection", "true");
const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";

/// A cluster with the manifest, and a client with its rights
struct Site {
    cluster: Cluster,
    admin: Client,
    restricted: Client,
}

impl Site {
    async fn start() -> Self {
        let cluster = Cluster::builder().start().await.unwrap();
        for namespace in ["lucid-system", "web", "other", "cert-manager"] {
            cluster.create_namespace(namespace, &[]).await.unwrap();
        }
        let binaries = Binaries::from_env().unwrap();
        binaries.ensure_async(&[Component::Kubectl]).await.unwrap();
        let output = Command::new(binaries.path(Component::Kubectl))
            .args(["apply", "--server-side", "--filename"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/cainjector.yaml"))
            .env("KUBECONFIG", cluster.kubeconfig_path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let restricted = Client::try_from(Self::config(&cluster).await).unwrap();
        Self { admin: cluster.client(), restricted, cluster }
    }

    async fn config(cluster: &Cluster) -> Config {
        let user = "system:serviceaccount:lucid-system:lucid-cainjector";
        let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig_for(user, None).unwrap()).unwrap();
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
    }

    async fn injector(&self) -> Injector {
        let api_server_ca = ApiServerCa::of(&Self::config(&self.cluster).await);
        assert!(api_server_ca.is_some());
        Injector::new(self.restricted.clone())
            .with_openshift_ca("lucid-system", "lucid-operator-ca", "ca.crt")
            .with_api_server_ca(api_server_ca)
    }

    async fn put_secret(&self, namespace: &str, name: &str, annotation: (&str, &str), bundle: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "annotations": { annotation.0: annotation.1 } },
            "data": { "ca.crt": BASE64_STANDARD.encode(bundle) },
        });
        let api: Api<Secret> = Api::namespaced(self.admin.clone(), namespace);
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(secret)).await.unwrap();
    }

    /// Notes of events about an object
    async fn notes(&self, object: &Object) -> Vec<String> {
        let namespace = object.namespace.unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.admin.clone(), namespace);
        let events = events.list(&Default::default()).await.unwrap();
        let is_its = |event: &Event| {
            let regarding = event.regarding.as_ref().unwrap();
            regarding.kind.as_deref() == Some(object.kind.name)
                && regarding.name.as_ref() == Some(&object.name)
        };
        events.into_iter().filter(is_its).filter_map(|event| event.note).collect()
    }

    async fn wait_for_note(&self, object: &Object, part: &str) {
        let what = format!("an event about {} that says {part:?}", object.name);
        until(&what, async || self.notes(object).await.iter().any(|note| note.contains(part))).await;
    }
}

/// Waits for a condition
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "no {what} within {PATIENCE:?}");
        sleep(Duration::from_millis(25)).await;
    }
}

/// An injector that runs until this is dropped
struct Running(JoinHandle<Result<(), InjectorError>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn start(injector: Injector) -> Running {
    let mut ready = injector.ready();
    let mut running = Running(tokio::spawn(injector.run(std::future::pending())));
    tokio::select! {
        ended = &mut running.0 => panic!("{ended:?}"),
        ready = tokio::time::timeout(PATIENCE, ready.wait_for(|ready| *ready)) => drop(ready.unwrap().unwrap()),
    }
    running
}

#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    group: &'static str,
    plural: &'static str,
    /// Where the bundle stands
    pointers: &'static [&'static str],
}

const WEBHOOKS: &[&str] = &["/webhooks/0/clientConfig/caBundle", "/webhooks/1/clientConfig/caBundle"];
const MUTATING: Kind = Kind {
    name: "MutatingWebhookConfiguration",
    group: "admissionregistration.k8s.io",
    plural: "mutatingwebhookconfigurations",
    pointers: WEBHOOKS,
};
const VALIDATING: Kind = Kind {
    name: "ValidatingWebhookConfiguration",
    group: "admissionregistration.k8s.io",
    plural: "validatingwebhookconfigurations",
    pointers: WEBHOOKS,
};
const CRD: Kind = Kind {
    name: "CustomResourceDefinition",
    group: "apiextensions.k8s.io",
    plural: "customresourcedefinitions",
    pointers: &["/spec/conversion/webhook/clientConfig/caBundle"],
};
const API_SERVICE: Kind = Kind {
    name: "APIService",
    group: "apiregistration.k8s.io",
    plural: "apiservices",
    pointers: &["/spec/caBundle"],
};
const CONFIG_MAP: Kind =
    Kind { name: "ConfigMap", group: "", plural: "configmaps", pointers: &["/data/service-ca.crt"] };
const FOUR: [Kind; 4] = [MUTATING, VALIDATING, CRD, API_SERVICE];

impl Kind {
    fn api(self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(self.group, "v1", self.name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, self.plural);
        match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }

    /// An object without a bundle, and its name
    fn body(self, word: &str) -> (String, Value) {
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

/// An object that was created
#[derive(Debug, Clone)]
struct Object {
    kind: Kind,
    namespace: Option<&'static str>,
    name: String,
    api: Api<DynamicObject>,
}

impl Object {
    async fn create(site: &Site, kind: Kind, word: &str, annotations: &[(&str, &str)]) -> Self {
        Self::create_changed(site, kind, word, annotations, |_| {}).await
    }

    async fn create_changed(
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

    async fn read(&self) -> DynamicObject {
        self.api.get(&self.name).await.unwrap()
    }

    /// What each place holds
    fn held(&self, object: &DynamicObject) -> Vec<String> {
        let text = |pointer: &&str| object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let decode = |text: &str| match self.kind.name {
            "ConfigMap" => text.to_owned(),
            _ => String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap(),
        };
        self.kind.pointers.iter().map(text).map(decode).collect()
    }

    async fn wait_for(&self, bundle: &TrustBundle) {
        let what = format!("bundle {bundle:?} in {self:?}");
        let pem = bundle.to_pem();
        until(&what, async || self.held(&self.read().await).iter().all(|held| *held == pem)).await;
    }

    async fn merge(&self, patch: Value) -> DynamicObject {
        self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    async fn annotate(&self, key: &str, value: Option<&str>) -> DynamicObject {
        self.merge(json!({ "metadata": { "annotations": { key: value } } })).await
    }

    /// Replaces what the first place holds
    async fn overwrite(&self, value: &str) -> DynamicObject {
        let patch = json!([{ "op": "add", "path": self.kind.pointers[0], "value": value }]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch).unwrap());
        self.api.patch(&self.name, &PatchParams::default(), &patch).await.unwrap()
    }
}

fn ca(age: Duration) -> TrustBundle {
    CertificateAuthority::generate(&names(), now() - age).unwrap().trust_bundle()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_asks_for_a_ca_gets_it_with_the_rights_of_the_manifest() {
    let site = Site::start().await;
    let ca = ca(DAY);
    site.put_secret("web", "ca", ALLOWED, &ca.to_pem()).await;
    let before = Object::create(&site, MUTATING, "early", &[(FROM_SECRET, "web/ca")]).await;
    let _running = start(site.injector().await).await;
    before.wait_for(&ca).await;

    each_annotation_is_honoured_on_each_kind(&site, &ca).await;
    what_does_not_ask_or_has_no_place_for_a_ca_is_left_alone(&site, &ca).await;
    what_is_right_is_not_written(&site, &ca).await;
    a_ca_that_is_replaced_stays_until_it_expires(&site).await;
    each_webhook_keeps_what_it_trusts_besides(&site, &ca).await;
    what_is_wiped_or_broken_is_put_back(&site, &ca).await;
    without_the_annotation_the_bundle_is_nobodys(&site, &ca).await;
    a_secret_must_allow_it(&site, &ca).await;
    what_cannot_be_honoured_is_told_once_and_honoured_as_soon_as_it_can(&site).await;
    a_secret_without_a_usable_ca_changes_nothing(&site, &ca).await;
    where_there_is_no_certificate_its_secret_is_found_by_its_name(&site).await;
    where_there_are_certificates_they_name_their_secret(&site).await;
}

async fn each_annotation_is_honoured_on_each_kind(site: &Site, ca: &TrustBundle) {
    let own = self::ca(2 * DAY);
    site.put_secret("lucid-system", "lucid-operator-ca", ("a", "b"), &own.to_pem()).await;
    let issued = self::ca(3 * DAY);
    site.put_secret("web", "issued", (CERTIFICATE_NAME, "serving"), &issued.to_pem()).await;
    let Some(ApiServerCa::Pem(pem)) = ApiServerCa::of(&Site::config(&site.cluster).await) else {
        panic!("a kubeconfig with certificate-authority-data is expected")
    };
    let api_server = TrustBundle::from_pem(&pem).unwrap();
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
        (CONFIG_MAP, "beta", OPENSHIFT),
        (CONFIG_MAP, "alpha", OPENSHIFT_ALPHA),
        (API_SERVICE, "alpha", OPENSHIFT_ALPHA),
    ] {
        let object = Object::create(site, kind, word, &[(annotation, "true")]).await;
        object.wait_for(&own).await;
        let others: Api<ConfigMap> = Api::namespaced(site.admin.clone(), "web");
        if kind.name == "ConfigMap" {
            assert_eq!(others.get(word).await.unwrap().data.unwrap()["other"], "key", "other keys stay");
        }
    }
}

fn is_written_by_us(object: &DynamicObject) -> bool {
    object.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER))
}

async fn what_does_not_ask_or_has_no_place_for_a_ca_is_left_alone(site: &Site, ca: &TrustBundle) {
    let from = [(FROM_SECRET, "web/ca")];
    let mut objects = vec![
        Object::create(site, MUTATING, "silent", &[]).await,
        Object::create(site, MUTATING, "not-true", &[(FROM_API_SERVER, "yes"), (OPENSHIFT, "no")]).await,
        Object::create(site, CONFIG_MAP, "not-openshift", &from).await,
        Object::create(site, VALIDATING, "alpha-unknown-here", &[(OPENSHIFT_ALPHA, "true")]).await,
    ];
    let none = |crd: &mut Value| crd["spec"]["conversion"] = json!({ "strategy": "None" });
    objects.push(Object::create_changed(site, CRD, "unconverted", &from, none).await);
    let local = |service: &mut Value| service["spec"]["service"] = Value::Null;
    objects.push(Object::create_changed(site, API_SERVICE, "local", &from, local).await);
    let unverified = |service: &mut Value| service["spec"]["insecureSkipTLSVerify"] = json!(true);
    let unverified = Object::create_changed(site, API_SERVICE, "unverified", &from, unverified).await;
    site.wait_for_note(&unverified, "insecureSkipTLSVerify").await;
    objects.push(unverified);
    // Seen later, so all before were seen.
    for kind in [MUTATING, VALIDATING, CRD, API_SERVICE] {
        Object::create(site, kind, "later", &from).await.wait_for(ca).await;
    }
    for object in objects {
        assert!(!is_written_by_us(&object.read().await), "{object:?}");
    }
}

async fn what_is_right_is_not_written(site: &Site, ca: &TrustBundle) {
    let object = Object::create(site, VALIDATING, "right", &[(FROM_SECRET, "web/ca")]).await;
    object.wait_for(ca).await;
    let changed = object.annotate("unrelated", Some("change")).await;
    let (second, first) =
        (Object::create(site, VALIDATING, "right-too", &[(FROM_SECRET, "web/ca")]).await, object);
    second.wait_for(ca).await;
    assert_eq!(first.read().await.resource_version(), changed.resource_version());
    let fields = first
        .read()
        .await
        .managed_fields()
        .iter()
        .find(|e| e.manager.as_deref() == Some(FIELD_MANAGER))
        .cloned();
    let text = serde_json::to_string(&fields.unwrap().fields_v1.unwrap()).unwrap();
    assert!(text.contains("f:caBundle") && !text.contains("f:service"), "only the bundle is applied: {text}");
}

async fn a_ca_that_is_replaced_stays_until_it_expires(site: &Site) {
    let [old, new] = [300, 1].map(|days| ca(days * DAY));
    let expired = ca(400 * DAY);
    site.put_secret("web", "rotated", ALLOWED, &old.merge(&expired).to_pem()).await;
    let from = [(FROM_SECRET, "web/rotated")];
    for kind in FOUR {
        Object::create(site, kind, "rotated", &from).await.wait_for(&old).await;
    }
    let stale = Object::create(site, VALIDATING, "stale", &from).await;
    stale.wait_for(&old).await;
    stale.overwrite(&BASE64_STANDARD.encode(old.merge(&expired).to_pem())).await;
    stale.wait_for(&old).await;

    site.put_secret("web", "rotated", ALLOWED, &new.to_pem()).await;
    let both = old.merge(&new);
    for kind in FOUR {
        let (name, _) = kind.body("rotated");
        let object = Object { kind, namespace: None, name, api: kind.api(&site.admin, None) };
        object.wait_for(&both).await;
    }
    assert_eq!(both.certificates().next(), new.certificates().next(), "the newest stands first");
}

async fn each_webhook_keeps_what_it_trusts_besides(site: &Site, ca: &TrustBundle) {
    let foreign = self::ca(5 * DAY);
    let trusts = |configuration: &mut Value| {
        let pem = BASE64_STANDARD.encode(foreign.to_pem());
        configuration["webhooks"][0]["clientConfig"]["caBundle"] = json!(pem);
    };
    let object = Object::create_changed(site, MUTATING, "mixed", &[(FROM_SECRET, "web/ca")], trusts).await;
    let expected = [ca.merge(&foreign).to_pem(), ca.to_pem()];
    until("merged bundles", async || object.held(&object.read().await) == expected).await;
}

async fn what_is_wiped_or_broken_is_put_back(site: &Site, ca: &TrustBundle) {
    for kind in FOUR {
        let object = Object::create(site, kind, "healed", &[(FROM_SECRET, "web/ca")]).await;
        object.wait_for(ca).await;
        // The API server does not take what is no certificate for a definition that had one.
        let values: &[&str] = if kind.name == CRD.name { &[""] } else { &["", "Cg==", "bm90IFBFTQ=="] };
        for value in values {
            let broken = object.overwrite(value).await;
            assert_ne!(object.held(&broken)[0], ca.to_pem());
            object.wait_for(ca).await;
        }
    }
}

async fn without_the_annotation_the_bundle_is_nobodys(site: &Site, ca: &TrustBundle) {
    let from = [(FROM_SECRET, "web/ca")];
    let object = Object::create(site, MUTATING, "released", &from).await;
    object.wait_for(ca).await;
    object.annotate(FROM_SECRET, None).await;
    let wiped = object.overwrite("").await;
    Object::create(site, MUTATING, "released-later", &from).await.wait_for(ca).await;
    assert_eq!(object.read().await.resource_version(), wiped.resource_version());
    object.annotate(FROM_SECRET, Some("web/ca")).await;
    object.wait_for(ca).await;
}

async fn a_secret_must_allow_it(site: &Site, ca: &TrustBundle) {
    let annotation = "cert-manager.io/allow-direct-injection";
    for (index, annotation) in [(annotation, "false"), ("a", "b")].into_iter().enumerate() {
        let word = format!("private{index}");
        site.put_secret("web", &word, annotation, &ca.to_pem()).await;
        let object = Object::create(site, MUTATING, &word, &[(FROM_SECRET, &format!("web/{word}"))]).await;
        let note = format!("Secret web/{word} does not allow it");
        site.wait_for_note(&object, &note).await;
        assert_eq!(object.held(&object.read().await), ["", ""]);
        site.put_secret("web", &word, ALLOWED, &ca.to_pem()).await;
        object.wait_for(ca).await;
    }
}

async fn what_cannot_be_honoured_is_told_once_and_honoured_as_soon_as_it_can(site: &Site) {
    let malformed = Object::create(site, CRD, "malformed", &[(FROM_SECRET, "no-namespace")]).await;
    site.wait_for_note(&malformed, "is \"no-namespace\"; accepted is NAMESPACE/NAME").await;
    // A first that is malformed hides a second that is not, as with cert-manager.
    malformed.annotate(FROM_CERTIFICATE, Some("web/serving")).await;

    let config_map = Object::create(site, CONFIG_MAP, "events-are-beside", &[(OPENSHIFT, "True")]).await;
    let missing = Object::create(site, VALIDATING, "missing", &[(FROM_SECRET, "web/missing")]).await;
    let note = "Secret web/missing does not exist";
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
    until("second event", async || site.notes(&missing).await.len() == 2).await;
    assert_eq!(missing.held(&missing.read().await), [ca.to_pem(), ca.to_pem()], "it is left alone");

    let secrets: Api<Secret> = Api::namespaced(site.admin.clone(), "lucid-system");
    secrets.delete("lucid-operator-ca", &Default::default()).await.unwrap();
    site.wait_for_note(&config_map, "Secret lucid-system/lucid-operator-ca does not exist").await;
}

async fn a_secret_without_a_usable_ca_changes_nothing(site: &Site, ca: &TrustBundle) {
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
        let object = Object::create_changed(site, API_SERVICE, word, &[(FROM_SECRET, &from)], trusts).await;
        site.wait_for_note(&object, note).await;
        assert_eq!(object.held(&object.read().await), [ca.to_pem()]);
    }
    let metadata = ObjectMeta {
        name: Some("leaf-only".to_owned()),
        annotations: Some([(ALLOWED.0.to_owned(), ALLOWED.1.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let data = [("tls.crt".to_owned(), ByteString(ca.to_pem().into_bytes()))].into();
    let secret = Secret { metadata, data: Some(data), ..Secret::default() };
    let secrets: Api<Secret> = Api::namespaced(site.admin.clone(), "web");
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let object = Object::create(site, API_SERVICE, "leaf-only", &[(FROM_SECRET, "web/leaf-only")]).await;
    site.wait_for_note(&object, "Secret web/leaf-only has no key ca.crt").await;
}

async fn where_there_is_no_certificate_its_secret_is_found_by_its_name(site: &Site) {
    let object = Object::create(site, MUTATING, "copied", &[(FROM_CERTIFICATE, "web/copied")]).await;
    site.wait_for_note(&object, "this cluster has no kind Certificate, and no Secret in namespace web").await;
    let ca = ca(DAY);
    site.put_secret("other", "copied", (CERTIFICATE_NAME, "copied"), &self::ca(DAY).to_pem()).await;
    site.put_secret("web", "copied-tls", (CERTIFICATE_NAME, "copied"), &ca.to_pem()).await;
    object.wait_for(&ca).await;
    site.put_secret("web", "copied-again", (CERTIFICATE_NAME, "copied"), &ca.to_pem()).await;
    site.wait_for_note(&object, "several Secrets in namespace web").await;
}

async fn where_there_are_certificates_they_name_their_secret(site: &Site) {
    let marked = ca(6 * DAY);
    site.put_secret("web", "marked", (CERTIFICATE_NAME, "named"), &marked.to_pem()).await;
    let object = Object::create(site, VALIDATING, "named", &[(FROM_CERTIFICATE, "web/named")]).await;
    object.wait_for(&marked).await;

    let certificates = |crd: &mut Value| {
        crd["metadata"]["name"] = json!("certificates.cert-manager.io");
        crd["spec"]["group"] = json!("cert-manager.io");
        crd["spec"]["names"] =
            json!({ "kind": "Certificate", "plural": "certificates", "singular": "certificate" });
        crd["spec"]["conversion"] = json!({ "strategy": "None" });
    };
    Object::create_changed(site, CRD, "certificate", &[], certificates).await;
    site.wait_for_note(&object, "Certificate web/named does not exist").await;

    let gvk = GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "certificates");
    let api: Api<DynamicObject> = Api::namespaced_with(site.admin.clone(), "web", &resource);
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": { "name": "named" }, "spec": { "secretName": "strange" },
    });
    let issued = ca(7 * DAY);
    site.put_secret("web", "strange", (CERTIFICATE_NAME, "other"), &issued.to_pem()).await;
    until("kind Certificate", async || {
        api.patch("named", &PatchParams::apply("test"), &Patch::Apply(&certificate)).await.is_ok()
    })
    .await;
    site.wait_for_note(&object, "Secret web/strange is not that of Certificate web/named").await;
    site.put_secret("web", "strange", (CERTIFICATE_NAME, "named"), &issued.to_pem()).await;
    let both = marked.merge(&issued);
    object.wait_for(&both).await;

    let third = ca(8 * DAY);
    site.put_secret("web", "third", (CERTIFICATE_NAME, "named"), &third.to_pem()).await;
    let patch = Patch::Merge(json!({ "spec": { "secretName": "third" } }));
    api.patch("named", &PatchParams::default(), &patch).await.unwrap();
    object.wait_for(&both.merge(&third)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_injects_beside_cert_manager_or_openshift_unless_told_to() {
    let site = Site::start().await;
    let ca = ca(DAY);
    site.put_secret("web", "ca", ALLOWED, &ca.to_pem()).await;

    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "cert-manager-cainjector-leader-election", "namespace": "kube-system" },
        "spec": { "holderIdentity": "cainjector-0", "leaseDurationSeconds": 60, "renewTime": micro_time(0) },
    });
    let leases: Api<DynamicObject> =
        namespaced(&site, ("coordination.k8s.io", "Lease", "leases"), "kube-system");
    let lease_name = "cert-manager-cainjector-leader-election";
    leases.patch(lease_name, &PatchParams::apply("test"), &Patch::Apply(&lease)).await.unwrap();
    let held = "Lease kube-system/cert-manager-cainjector-leader-election (held by cainjector-0)";
    assert_eq!(refusal(&site).await, cert_manager(held));

    let long_ago = Patch::Merge(json!({ "spec": { "renewTime": micro_time(3600) } }));
    leases.patch(lease_name, &PatchParams::default(), &long_ago).await.unwrap();
    let labels = json!({ "app": "cainjector", "app.kubernetes.io/component": "cainjector" });
    deploy(&site, "cert-manager", "cert-manager-cainjector", &labels, 2).await;
    let ready = "Deployment cert-manager/cert-manager-cainjector (2 ready)";
    assert_eq!(refusal(&site).await, cert_manager(ready));

    let beside = Object::create(&site, MUTATING, "beside", &[(FROM_SECRET, "web/ca")]).await;
    let running = start(site.injector().await.beside_cert_manager(true)).await;
    beside.wait_for(&ca).await;
    drop(running);

    // Without a pod that is ready, and with an old Lease, it does not run.
    set_ready(&site, "cert-manager", "cert-manager-cainjector", 0).await;
    site.cluster.create_namespace("openshift-service-ca", &[]).await.unwrap();
    deploy(&site, "openshift-service-ca", "service-ca", &json!({ "app": "service-ca" }), 1).await;
    let expected = "failed to start injecting CAs beside a running service CA of OpenShift: Deployment \
                    openshift-service-ca/service-ca (1 ready)";
    assert_eq!(refusal(&site).await, expected);
    drop(start(Injector::new(site.restricted.clone())).await);
    set_ready(&site, "openshift-service-ca", "service-ca", 0).await;

    one_that_appears_later_is_given_way(&site, &ca).await;
}

async fn one_that_appears_later_is_given_way(site: &Site, ca: &TrustBundle) {
    let injector = site.injector().await;
    let mut ready = injector.ready();
    let _running = start(injector).await;
    let from = [(FROM_SECRET, "web/ca")];
    let object = Object::create(site, MUTATING, "given-way", &from).await;
    object.wait_for(ca).await;
    set_ready(site, "cert-manager", "cert-manager-cainjector", 1).await;
    tokio::time::timeout(PATIENCE, ready.wait_for(|ready| !ready)).await.unwrap().unwrap();
    object.overwrite("").await;
    let second = Object::create(site, VALIDATING, "given-way", &from).await;

    set_ready(site, "cert-manager", "cert-manager-cainjector", 0).await;
    assert_eq!(
        (object.held(&object.read().await)[0].as_str(), is_written_by_us(&second.read().await)),
        ("", false)
    );
    tokio::time::timeout(PATIENCE, ready.wait_for(|ready| *ready)).await.unwrap().unwrap();
    object.wait_for(ca).await;
    second.wait_for(ca).await;
}

fn cert_manager(evidence: &str) -> String {
    format!("failed to start injecting CAs beside a running cainjector of cert-manager: {evidence}")
}

async fn refusal(site: &Site) -> String {
    let running = site.injector().await.run(std::future::pending());
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap_err().to_string()
}

/// Seconds ago, as a Lease has it
fn micro_time(seconds: u64) -> String {
    let time = now() - Duration::from_secs(seconds);
    let seconds = time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let time = jiff::Timestamp::from_second(seconds.try_into().unwrap()).unwrap();
    time.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()
}

fn namespaced(site: &Site, (group, kind, plural): (&str, &str, &str), namespace: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
    Api::namespaced_with(site.admin.clone(), namespace, &resource)
}

async fn deploy(site: &Site, namespace: &str, name: &str, labels: &Value, ready: u32) {
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

/// As the controller of Deployments would, which does not run here
async fn set_ready(site: &Site, namespace: &str, name: &str, ready: u32) {
    let status = json!({ "status": { "replicas": 2, "readyReplicas": ready } });
    let deployments = namespaced(site, ("apps", "Deployment", "deployments"), namespace);
    deployments.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cas_come_from_the_namespaces_that_are_chosen_and_rights_to_those_are_enough() {
    let site = Site::start().await;
    let ca = ca(DAY);
    for namespace in ["web", "other"] {
        site.put_secret(namespace, "ca", ALLOWED, &ca.to_pem()).await;
        site.put_secret(namespace, "issued", (CERTIFICATE_NAME, "serving"), &ca.to_pem()).await;
    }
    let bindings: Api<DynamicObject> = Kind {
        name: "ClusterRoleBinding",
        group: "rbac.authorization.k8s.io",
        plural: "clusterrolebindings",
        pointers: &[],
    }
    .api(&site.admin, None);
    bindings.delete("lucid-cainjector-secrets", &Default::default()).await.unwrap();
    let forbidden = Object::create(&site, MUTATING, "forbidden", &[(FROM_SECRET, "web/ca")]).await;
    let running = start(site.injector().await).await;
    site.wait_for_note(&forbidden, "failed to get Secret web/ca").await;
    drop(running);

    let role = ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": "cas" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lucid-cainjector-secrets" },
        "subjects": [{ "kind": "ServiceAccount", "name": "lucid-cainjector", "namespace": "lucid-system" }],
    });
    let roles = namespaced(&site, role, "web");
    roles.patch("cas", &PatchParams::apply("test"), &Patch::Apply(&binding)).await.unwrap();
    let _running = start(site.injector().await.with_secret_namespaces(["web"])).await;
    forbidden.wait_for(&ca).await;
    Object::create(&site, CRD, "near", &[(FROM_CERTIFICATE, "web/serving")]).await.wait_for(&ca).await;
    for (word, annotation, name) in
        [("far", FROM_SECRET, "other/ca"), ("away", FROM_CERTIFICATE, "other/serving")]
    {
        let object = Object::create(&site, MUTATING, word, &[(annotation, name)]).await;
        site.wait_for_note(&object, "namespace other is none of those that CAs are taken from: web").await;
        assert!(!is_written_by_us(&object.read().await));
    }
}
