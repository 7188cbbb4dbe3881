//! Shared test helpers.

pub(crate) mod following;
pub(crate) mod handshake;
pub(crate) mod log;
pub(crate) mod objects;
pub(crate) mod pairs;

use std::time::{Duration, SystemTime};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use lucid_certs::ServingNames;
use lucid_e2e::ClusterExt as _;
use lucid_testbed::Cluster;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};

/// Far above any expected duration.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const HOUR: Duration = Duration::from_hours(1);
pub(crate) const DAY: Duration = Duration::from_hours(24);

pub(crate) fn names() -> ServingNames {
    ServingNames::for_services("lucid-system", &["lucid-operator", "lucid-operator-webhook"])
        .and_then(|names| names.with_host("127.0.0.1"))
        .unwrap()
}

/// Current time in whole seconds, the resolution of certificates.
pub(crate) fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(|error| error.to_string() + ": ").collect()
}

/// Sum of the series whose text begins with `prefix`.
pub(crate) fn metric(registry: &Registry, prefix: &str) -> u64 {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let values = text.lines().filter(|line| line.starts_with(prefix)).map(|line| line.rsplit(' ').next());
    values.map(|value| value.unwrap().parse::<u64>().unwrap()).sum()
}

pub(crate) fn certificate_pem(der: &[u8]) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", BASE64_STANDARD.encode(der))
}

/// Runs kubectl with an object as standard input. Returns its errors.
pub(crate) fn kubectl(cluster: &Cluster, arguments: &[&str], object: &Value) -> Result<(), String> {
    let arguments = [arguments, &["--validate=false", "--filename", "-"]].concat();
    let output = cluster.kubectl(&arguments, &object.to_string()).unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

/// Allows a user what the rules say: in the namespace `default`, or everywhere for the kind `ClusterRole`.
pub(crate) fn grant(cluster: &Cluster, kind: &str, user: &str, rules: &[Value]) {
    let (group, metadata) = ("rbac.authorization.k8s.io", json!({ "name": user }));
    for mut object in [
        json!({ "kind": kind, "rules": rules }),
        json!({
            "kind": format!("{kind}Binding"),
            "roleRef": { "apiGroup": group, "kind": kind, "name": user },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
        }),
    ] {
        object["apiVersion"] = json!(format!("{group}/v1"));
        object["metadata"] = metadata.clone();
        kubectl(cluster, &["apply"], &object).unwrap();
    }
}

pub(crate) async fn config_of(cluster: &Cluster, user: &str) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(&cluster.kubeconfig_for(user, None).unwrap()).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.proxy_url = None;
    config
}

pub(crate) async fn client_of(cluster: &Cluster, user: &str) -> Client {
    Client::try_from(config_of(cluster, user).await).unwrap()
}
