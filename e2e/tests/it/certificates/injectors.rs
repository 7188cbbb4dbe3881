//! cert-manager's cainjector and ours with the same input: the output of each, and the differences.
//!
//! docs/certificates/injector.md lists the differences.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use lucid_e2e::{ClusterExt as _, Reply, ask, eventually};
use lucid_testbed::{Builder, Cluster};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::common::{has_cert_manager, has_kubernetes};

const FROM_SECRET: &str = "cert-manager.io/inject-ca-from-secret";
const FROM_CERTIFICATE: &str = "cert-manager.io/inject-ca-from";
const FROM_API_SERVER: &str = "cert-manager.io/inject-apiserver-ca";
const ALLOWED: &str = "cert-manager.io/allow-direct-injection";

const GARBAGE: &str = "garbage";

/// Objects with the same annotations, one of each kind.
struct Case {
    word: &'static str,
    annotations: &'static [(&'static str, &'static str)],
    /// Initial bundle, by the names of certificates.
    before: &'static [&'static str],
    /// Bundle after cert-manager's cainjector, and after ours.
    theirs: &'static [&'static str],
    ours: &'static [&'static str],
}

const fn case(
    word: &'static str,
    annotations: &'static [(&'static str, &'static str)],
    before: &'static [&'static str],
    after: &'static [&'static str],
) -> Case {
    Case { word, annotations, before, theirs: after, ours: after }
}

const CASES: &[Case] = &[
    case("secret", &[(FROM_SECRET, "web/new")], &[], &["new"]),
    case("certificate", &[(FROM_CERTIFICATE, "web/site")], &[], &["new"]),
    case("apiserver", &[(FROM_API_SERVER, "true")], &[], &["api server"]),
    case(
        "all",
        &[(FROM_SECRET, "web/old"), (FROM_CERTIFICATE, "web/site"), (FROM_API_SERVER, "true")],
        &[],
        &["old"],
    ),
    case("two", &[(FROM_CERTIFICATE, "web/site"), (FROM_API_SERVER, "true")], &[], &["new"]),
    case("both", &[(FROM_SECRET, "web/both")], &[], &["new", "old"]),
    case("heldexpired", &[(FROM_SECRET, "web/new")], &["expired"], &["new"]),
    case("partlyexpired", &[(FROM_SECRET, "web/partly-expired")], &[], &["new"]),
    // Without injection.
    case("closed", &[(FROM_SECRET, "web/closed")], &["old"], &["old"]),
    case("keyless", &[(FROM_SECRET, "web/keyless")], &["old"], &["old"]),
    case("absent", &[(FROM_SECRET, "web/absent")], &["old"], &["old"]),
    case("absentcertificate", &[(FROM_CERTIFICATE, "web/absent")], &["old"], &["old"]),
    case("foreign", &[(FROM_CERTIFICATE, "web/foreign")], &["old"], &["old"]),
    case("malformed", &[(FROM_SECRET, "new")], &["old"], &["old"]),
    case("malformedfirst", &[(FROM_SECRET, "new"), (FROM_CERTIFICATE, "web/site")], &["old"], &["old"]),
    case("capital", &[(FROM_API_SERVER, "True")], &["old"], &["old"]),
    case("expired", &[(FROM_SECRET, "web/expired")], &["old"], &["old"]),
    // Differences: the order, and the handling of an invalid CA.
    Case {
        word: "held",
        annotations: &[(FROM_SECRET, "web/new")],
        before: &["old"],
        theirs: &["old", "new"],
        ours: &["new", "old"],
    },
    Case {
        word: "garbage",
        annotations: &[(FROM_SECRET, "web/garbage")],
        before: &["old"],
        theirs: &[GARBAGE],
        ours: &["old"],
    },
];

struct Kind {
    name: &'static str,
    path: &'static str,
    bundles: &'static [&'static str],
}

const WEBHOOKS: &[&str] = &["/webhooks/0/clientConfig/caBundle", "/webhooks/1/clientConfig/caBundle"];

const KINDS: [Kind; 4] = [
    Kind {
        name: "MutatingWebhookConfiguration",
        path: "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
        bundles: WEBHOOKS,
    },
    Kind {
        name: "ValidatingWebhookConfiguration",
        path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        bundles: WEBHOOKS,
    },
    Kind {
        name: "CustomResourceDefinition",
        path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        bundles: &["/spec/conversion/webhook/clientConfig/caBundle"],
    },
    Kind {
        name: "APIService",
        path: "/apis/apiregistration.k8s.io/v1/apiservices",
        bundles: &["/spec/caBundle"],
    },
];

impl Kind {
    fn object(&self, word: &str, bundle: &str) -> (String, Value) {
        let service = json!({"namespace": "web", "name": "web"});
        let config = json!({"service": service, "caBundle": bundle});
        let versions = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}}]);
        match self.name {
            "CustomResourceDefinition" => (
                format!("{word}s.example.com"),
                json!({"spec": {
                    "group": "example.com", "scope": "Namespaced", "versions": versions,
                    "names": {"kind": word, "plural": format!("{word}s"), "singular": word},
                    "conversion": {"strategy": "Webhook", "webhook": {
                        "conversionReviewVersions": ["v1"], "clientConfig": config,
                    }},
                }}),
            ),
            "APIService" => (
                format!("v1.{word}.example.org"),
                json!({"spec": {
                    "group": format!("{word}.example.org"), "version": "v1", "service": service,
                    "caBundle": bundle, "groupPriorityMinimum": 100, "versionPriority": 100,
                }}),
            ),
            _ => {
                let webhook = |name: &str| {
                    json!({
                        "name": format!("{name}.{word}.example.com"), "clientConfig": config,
                        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
                    })
                };
                (word.to_owned(), json!({"webhooks": [webhook("first"), webhook("second")]}))
            }
        }
    }
}

type Certificates = BTreeMap<&'static str, String>;

struct Site<'a> {
    cluster: Cluster,
    certificates: &'a Certificates,
    api_server: String,
}

type Found = BTreeMap<(&'static str, &'static str), Vec<Vec<String>>>;

#[tokio::test]
async fn our_injector_differs_as_documented() {
    if !has_cert_manager() {
        return;
    }
    let (certificates, key) = certificates();
    let builder = Cluster::builder().cert_manager();
    let (theirs, ours) = tokio::join!(
        Site::start(builder.clone().cainjector(), &certificates, &key),
        Site::start(builder, &certificates, &key)
    );
    if !has_kubernetes(&ours.cluster, 31, "a definition whose invalid bundle is rejected").await {
        return;
    }
    let _injector = super::injector(&ours.cluster);
    let expected = |after: fn(&Case) -> &'static [&'static str]| {
        let mut expected = Found::new();
        for (case, kind) in CASES.iter().flat_map(|case| KINDS.iter().map(move |kind| (case, kind))) {
            // The API server rejects a definition with an invalid bundle.
            let refused = after(case) == [GARBAGE] && kind.name == "CustomResourceDefinition";
            let after = if refused { case.before } else { after(case) };
            let after: Vec<_> = after.iter().map(|name| (*name).to_owned()).collect();
            expected.insert((case.word, kind.name), vec![after; kind.bundles.len()]);
        }
        expected
    };
    theirs.become_as(&expected(|case| case.theirs)).await;
    ours.become_as(&expected(|case| case.ours)).await;

    // A replaced CA stays beside the new one.
    for (site, after) in [(&theirs, ["old", "new"]), (&ours, ["new", "old"])] {
        site.secret("old", &[(ALLOWED, "true")], &[("ca.crt", &certificates["new"])]).await;
        let mut replaced = expected(if after[0] == "old" { |case| case.theirs } else { |case| case.ours });
        for kind in &KINDS {
            replaced.insert(("all", kind.name), vec![after.map(str::to_owned).to_vec(); kind.bundles.len()]);
        }
        site.become_as(&replaced).await;
    }

    // Each injector owns exactly the bundle.
    for kind in &KINDS {
        let (name, _) = kind.object("secret", "");
        let theirs = theirs.owned(kind, &name, "cert-manager-cainjector").await;
        assert_eq!(ours.owned(kind, &name, "lucid-cainjector").await, theirs, "{}", kind.name);
    }
}

/// `new` is the certificate of an issuer with this key.
fn certificates() -> (Certificates, String) {
    let days = |days: i64| time::OffsetDateTime::now_utc() + time::Duration::days(days);
    let mut keys = BTreeMap::new();
    let mut made = Certificates::new();
    for (name, begin, end) in [("new", -1, 100), ("old", -50, 50), ("expired", -100, -1)] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (days(begin), days(end));
        made.insert(name, params.self_signed(&key).unwrap().pem());
        keys.insert(name, key.serialize_pem());
    }
    (made, keys["new"].clone())
}

impl<'a> Site<'a> {
    async fn start(builder: Builder, certificates: &'a Certificates, key: &str) -> Self {
        let cluster = builder.start().await.unwrap();
        cluster.create_namespace("web", &[]).await.unwrap();
        let api_server = std::fs::read_to_string(cluster.authority_path()).unwrap();
        let site = Self { cluster, certificates, api_server };
        site.prepare(key).await;
        site
    }

    async fn prepare(&self, key: &str) {
        let [new, old, expired] = ["new", "old", "expired"].map(|name| self.certificates[name].as_str());
        let allowed = &[(ALLOWED, "true")];
        for (name, ca) in [
            ("new", new),
            ("old", old),
            ("expired", expired),
            ("both", &format!("{new}{old}")),
            ("partly-expired", &format!("{expired}{new}")),
            ("garbage", GARBAGE),
        ] {
            self.secret(name, allowed, &[("ca.crt", ca)]).await;
        }
        self.secret("closed", &[], &[("ca.crt", new)]).await;
        self.secret("keyless", allowed, &[("tls.crt", new)]).await;
        // A Certificate with a third-party Secret, which no issuer signs.
        self.secret("foreign-tls", &[], &[("ca.crt", new)]).await;
        self.cert_manager("certificates", "foreign", &certificate("foreign", "absent")).await;
        self.secret("issuer", &[], &[("tls.crt", new), ("tls.key", key)]).await;
        self.cert_manager("issuers", "issuer", &json!({"ca": {"secretName": "issuer"}})).await;
        self.cert_manager("certificates", "site", &certificate("site", "issuer")).await;
        for (case, kind) in CASES.iter().flat_map(|case| KINDS.iter().map(move |kind| (case, kind))) {
            let before: String = case.before.iter().map(|name| self.certificates[name].as_str()).collect();
            let (name, mut object) = kind.object(case.word, &BASE64_STANDARD.encode(before));
            let annotations: BTreeMap<_, _> = case.annotations.iter().copied().collect();
            object["metadata"] = json!({"name": name, "annotations": annotations});
            self.ask(Method::POST, kind.path, "application/json", &object).await;
        }
    }

    async fn ask(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Value {
        let reply = ask(&self.cluster.client(), None, method, path, content_type, body).await.unwrap();
        let Reply { status, body, .. } = reply;
        assert!(status < 300, "{path}: {body}");
        body
    }

    async fn secret(&self, name: &str, annotations: &[(&str, &str)], data: &[(&str, &str)]) {
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, text)| (key, BASE64_STANDARD.encode(text))).collect();
        let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "annotations": annotations}, "data": data,
        });
        let path = format!("/api/v1/namespaces/web/secrets/{name}?fieldManager=test&force=true");
        self.ask(Method::PATCH, &path, "application/apply-patch+yaml", &secret).await;
    }

    async fn cert_manager(&self, plural: &str, name: &str, spec: &Value) {
        let kind = if plural == "issuers" { "Issuer" } else { "Certificate" };
        let object = json!({
            "apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let path = format!("/apis/cert-manager.io/v1/namespaces/web/{plural}");
        self.ask(Method::POST, &path, "application/json", &object).await;
    }

    /// Waits until all objects have the expected bundles, and verifies them again later.
    async fn become_as(&self, expected: &Found) {
        let found = async || {
            let mut found = Found::new();
            for (case, kind) in CASES.iter().flat_map(|case| KINDS.iter().map(move |kind| (case, kind))) {
                let object = self.get(kind, &kind.object(case.word, "").0).await;
                let bundles =
                    kind.bundles.iter().map(|pointer| self.names(object.pointer(pointer))).collect();
                found.insert((case.word, kind.name), bundles);
            }
            found
        };
        let difference = async || {
            let found = found().await;
            let differs = |(key, value): &(_, _)| expected.get(key) != Some(value);
            found.into_iter().filter(differs).collect::<Found>()
        };
        eventually("these bundles", async || {
            let differing = difference().await;
            if differing.is_empty() { Ok(()) } else { Err(differing) }
        })
        .await;
        // An unchanged object might still be about to change.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(difference().await, Found::new());
    }

    async fn get(&self, kind: &Kind, name: &str) -> Value {
        let path = format!("{}/{name}", kind.path);
        self.ask(Method::GET, &path, "application/json", &Value::Null).await
    }

    /// Names of the certificates in a bundle; invalid content verbatim.
    fn names(&self, bundle: Option<&Value>) -> Vec<String> {
        let bundle = BASE64_STANDARD.decode(bundle.and_then(Value::as_str).unwrap_or_default()).unwrap();
        let bundle = String::from_utf8(bundle).unwrap();
        let known = self.certificates.iter().map(|(name, pem)| (*name, pem.as_str()));
        let known: Vec<_> = known.chain([("api server", self.api_server.as_str())]).collect();
        let name = |pem: &str| {
            let found = known.iter().find(|(_, known)| known.trim() == pem.trim());
            found.map_or_else(|| pem.to_owned(), |(name, _)| (*name).to_owned())
        };
        bundle.split_inclusive("-----END CERTIFICATE-----\n").map(name).collect()
    }

    async fn owned(&self, kind: &Kind, name: &str, manager: &str) -> Value {
        let object = self.get(kind, name).await;
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["manager"] == manager);
        entry.unwrap_or_else(|| panic!("{manager} is not in {entries:?}"))["fieldsV1"].clone()
    }
}

fn certificate(name: &str, issuer: &str) -> Value {
    json!({
        "secretName": format!("{name}-tls"), "dnsNames": [format!("{name}.web.svc")],
        "privateKey": {"algorithm": "ECDSA"}, "issuerRef": {"name": issuer},
    })
}
