//! The decision log during its recording: followers and witnesses.

mod disk;
mod follow;
mod tail;
mod witness;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lucid_e2e::{Operator, OperatorBuilder, Process, program};
use lucid_testbed::Cluster;
use serde_json::Value;

use crate::common::{client_of, create, secured, validating_webhooks};
use crate::correlation::audit;

const TOKEN: &str = "a-token-of-tests";

/// File with the token of `/audit`.
fn token(folder: &Path) -> String {
    token_file(folder, "audit-token", TOKEN)
}

/// File with the token of `/audit/alerts`.
fn alert_token(folder: &Path) -> String {
    token_file(folder, "audit-alert-token", "a-token-of-alerts")
}

fn token_file(folder: &Path, name: &str, token: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, token).unwrap();
    path.display().to_string()
}

pub(crate) fn key(folder: &Path, origin: &str) -> String {
    let key = folder.with_extension("key").display().to_string();
    audit(&["key", "--origin", origin, "--out", &key]).printed().trim().to_owned()
}

/// Configures a decision log in `folder`, sealed by the [`key`] of that log.
pub(crate) fn sealed(builder: OperatorBuilder, folder: &Path, origin: &str) -> OperatorBuilder {
    let key = folder.with_extension("key").display().to_string();
    builder
        .env("LUCID_DECISION_LOG", folder.display().to_string())
        .env("LUCID_DECISION_LOG_KEY", key)
        .flag("--decision-log-origin", origin)
        .flag("--audit-token-file", token(folder.parent().unwrap()))
        .flag("--audit-alert-token-file", alert_token(folder.parent().unwrap()))
}

async fn authorities(cluster: &Cluster, registration: &str) -> String {
    let webhook = validating_webhooks(cluster, registration).await.remove(0);
    let path = cluster.folder().join(format!("{registration}-ca.crt"));
    fs::write(&path, webhook.client_config.ca_bundle.unwrap().0).unwrap();
    path.display().to_string()
}

async fn status(operator: &Operator, ca: &str) -> Value {
    let request = client_of(&fs::read(ca).unwrap()).get(format!("{}/audit/status", operator.url()));
    request.bearer_auth(TOKEN).send().await.unwrap().json().await.unwrap()
}

fn start(cluster: &Cluster, name: &'static str, arguments: &[&str]) -> (Process, PathBuf) {
    let mut command: Command = lucid_e2e::command(program("lucid").unwrap());
    command.arg("audit").args(arguments).env("LUCID_LOG", "warn");
    let output = cluster.folder().join(format!("{name}.out"));
    (Process::start(name, command, output.clone()).unwrap(), output)
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

async fn decide(cluster: &Cluster, names: impl IntoIterator<Item = String>) {
    for name in names {
        let response = create(cluster, "shop", &secured(&name)).await;
        assert!(response.result.is_ok(), "{name}: {response:?}");
    }
}
