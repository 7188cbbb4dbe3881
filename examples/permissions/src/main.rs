//! An operator whose webhook copies the label `team` of a pod to an annotation. The administrator restricts it with
//! `webhooks.yaml` in ConfigMap `team-webhooks`.
//!
//! It runs outside the cluster: `example-permissions 127.0.0.1:8443` serves and registers `https://127.0.0.1:8443`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use lucid_webhook::guard::Permissions;
use lucid_webhook::operator::Operator;
use lucid_webhook::registration::{Endpoint, parse_selector};
use lucid_webhook::{BoxError, Changed, Object, Operation, Router, Webhook, shutdown_signal};
use serde::Deserialize;
use tokio::sync::watch;

const NAME: &str = "team";
const NAMESPACE: &str = "team-system";
const WEBHOOK: &str = "team.example.com";

/// Panics for pods without the label.
async fn annotate_team(Object(mut pod): Object<Pod>) -> Changed<Pod> {
    let team = pod.metadata.labels.get_or_insert_default()["team"].clone();
    pod.metadata.annotations.get_or_insert_default().insert("team.example.com/team".into(), team);
    Changed::new(pod)
}

/// Content of `webhooks.yaml`.
#[derive(Deserialize)]
struct Administration {
    webhooks: BTreeMap<String, Permissions>,
}

fn read(config: Option<ConfigMap>) -> Result<Permissions, BoxError> {
    let Some(config) = config else { return Ok(Permissions::default()) };
    let data = config.data.unwrap_or_default();
    let yaml = data.get("webhooks.yaml").ok_or("key webhooks.yaml is missing")?;
    let mut administration: Administration = serde_yaml::from_str(yaml)?;
    Ok(administration.webhooks.remove(WEBHOOK).unwrap_or_default())
}

/// Follows the ConfigMap. Invalid content is logged, and changes nothing.
async fn follow(client: Client, permissions: watch::Sender<Permissions>) {
    let api = Api::namespaced(client, NAMESPACE);
    let mut versions = pin!(watcher::watch_object(api, "team-webhooks").default_backoff());
    while let Some(version) = versions.next().await {
        match version.map_err(BoxError::from).and_then(read) {
            Ok(read) => _ = permissions.send_replace(read),
            Err(error) => tracing::warn!("failed to read ConfigMap {NAMESPACE}/team-webhooks: {error}"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let address: SocketAddr = std::env::args().nth(1).ok_or("expected IP:PORT")?.parse()?;
    let client = Client::try_default().await?;

    let (sender, permissions) = watch::channel(Permissions::default());
    tokio::spawn(follow(client.clone(), sender));
    let selector = parse_selector("team.example.com/enabled=true")?;
    let webhook = Webhook::defaulting::<Pod>(WEBHOOK, [Operation::Create], annotate_team)
        .with_client(client.clone())
        .with_permissions(permissions)
        .with_registration(|registration| registration.with_namespace_selector(selector));
    let router = Router::new().webhook("/team", webhook);

    Operator::new(NAME, NAMESPACE, router)
        .with_endpoint(Endpoint::url(format!("https://{address}")))
        .with_addresses(address, SocketAddr::new(address.ip(), 0))
        .run(client, shutdown_signal()?)
        .await
}
