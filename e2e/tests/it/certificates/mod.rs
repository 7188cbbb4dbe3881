//! Sources of the operator's certificate, and rotations without denied pods.

mod cert_manager;
mod clients;
mod injectors;
mod metrics;
mod own;
pub(crate) mod sources;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lucid_e2e::{Operator, Process, eventually, program};
use lucid_testbed::Cluster;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::json;

use crate::common::{get, logged_in, served};

const SETTLE: &str = "2s";

/// Validity of external certificates, in days.
const DAYS: u8 = 90;

pub(crate) struct Authority {
    pub(crate) certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

pub(crate) struct Pair {
    certificate: String,
    key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_after = time::OffsetDateTime::now_utc() + Duration::from_hours(24 * u64::from(DAYS));
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// The authority of the cluster itself.
    fn of(cluster: &Cluster) -> Self {
        let read = |name| std::fs::read_to_string(cluster.folder().join("pki").join(name)).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "lucid-testbed-ca");
        let key = KeyPair::from_pem(&read("ca.key")).unwrap();
        Self { certificate: read("ca.crt"), issuer: Issuer::new(params, key) }
    }

    pub(crate) fn issue(&self, common_name: &str, names: Vec<String>) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.not_after = time::OffsetDateTime::now_utc() + Duration::from_hours(24 * u64::from(DAYS));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// Issues a certificate for both programs in a cluster whose API server calls them at `address`.
    pub(crate) fn serving(&self, address: IpAddr) -> Pair {
        // The last names are those used by OLM.
        let services = [
            "lucid-operator-webhook",
            "lucid-validator-webhook",
            "lucid-operator-service",
            "lucid-validator-service",
        ];
        let services = services.map(|service| format!("{service}.lucid-system.svc"));
        self.issue("lucid", services.into_iter().chain([address.to_string()]).collect())
    }
}

impl Pair {
    /// Files in a Secret or a directory, with the CA certificate if given.
    pub(crate) fn files(&self, ca: Option<&str>) -> BTreeMap<String, Vec<u8>> {
        let own = [("tls.crt", self.certificate.as_str()), ("tls.key", &self.key)];
        let all = own.into_iter().chain(ca.map(|ca| ("ca.crt", ca)));
        all.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).collect()
    }
}

async fn write_secret(cluster: &Cluster, files: BTreeMap<String, Vec<u8>>) {
    let data: BTreeMap<_, _> = files.into_iter().map(|(name, bytes)| (name, ByteString(bytes))).collect();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "lucid-operator-tls"}, "data": data});
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "lucid-system");
    let manager = PatchParams::apply("external").force();
    secrets.patch("lucid-operator-tls", &manager, &Patch::Apply(secret)).await.unwrap();
}

/// Writes the bundle of every webhook in both configurations, like an external manager.
async fn write_bundles(cluster: &Cluster, authorities: &[&Authority]) {
    write_bundles_of("lucid-operator", cluster, authorities).await;
}

pub(crate) async fn write_bundles_of(name: &str, cluster: &Cluster, authorities: &[&Authority]) {
    let pem: String = authorities.iter().map(|authority| authority.certificate.as_str()).collect();
    let bundle = ByteString(pem.into_bytes());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    // The validator's configuration may be absent.
    if let Some(found) = mutating.get_opt(name).await.unwrap() {
        let webhooks = found.webhooks.unwrap_or_default().len();
        mutating.patch(name, &cainjector(), &bundles(webhooks, &bundle)).await.unwrap();
    }
    let webhooks = validating.get(name).await.unwrap().webhooks.unwrap_or_default().len();
    validating.patch(name, &cainjector(), &bundles(webhooks, &bundle)).await.unwrap();
}

pub(crate) fn injector(cluster: &Cluster) -> Process {
    let mut command = lucid_e2e::command(program("lucid-operator").unwrap());
    command.args(["cainjector", "--secret-namespaces=*"]).env("KUBECONFIG", cluster.kubeconfig_path());
    command.env("LUCID_ADMIN_LISTEN", "127.0.0.1:0");
    Process::start("cainjector", command, cluster.folder().join("logs/lucid-cainjector.log")).unwrap()
}

fn cainjector() -> PatchParams {
    PatchParams { field_manager: Some("cainjector".to_owned()), ..PatchParams::default() }
}

fn bundles(webhooks: usize, bundle: &ByteString) -> Patch<()> {
    let path = |number| format!("/webhooks/{number}/clientConfig/caBundle");
    let add = (0..webhooks).map(|number| json!({"op": "add", "path": path(number), "value": bundle}));
    Patch::Json(serde_json::from_value(add.collect()).unwrap())
}

/// Waits for an annotation of the registration.
async fn annotation(cluster: &Cluster, key: &str) -> Option<String> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    // The registration is created before it is filled.
    let is_filled =
        |found: Option<ValidatingWebhookConfiguration>| found.is_some_and(|it| it.webhooks.is_some());
    eventually("a registration", async || is_filled(api.get_opt("lucid-operator").await.unwrap())).await;
    let found = api.get("lucid-operator").await.unwrap();
    found.metadata.annotations.unwrap_or_default().remove(key)
}

async fn counted(operator: &Operator, line: &str) {
    eventually(line, async || get(operator, "/metrics").await.1.contains(line)).await;
}

async fn logged(operator: &Operator, text: &str) {
    logged_in(&operator.log(), text).await;
}

async fn serves_under(operator: &Operator, authority: &Authority) {
    eventually("it serves the new certificate", async || {
        served(operator, authority.certificate.as_bytes()).await.is_some()
    })
    .await;
}
