//! Readiness of components, with an early end if one exits.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use kube::{Client, config::AuthInfo};
use snafu::whatever;

use crate::{Cluster, Error, binaries::Component, client, process::tail};

/// Usually some 4 s; much longer on a machine that also builds.
const PATIENCE: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_millis(50);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn api_server(cluster: &mut Cluster) -> Result<(), Error> {
    let client = cluster.client();
    // /readyz does not wait for the namespace `default`, which is created in the background.
    for path in ["/readyz", "/api/v1/namespaces/default"] {
        answers(cluster, Component::ApiServer, &client, path).await?;
    }
    Ok(())
}

/// Waits for kube-controller-manager to create the ServiceAccount of the namespace `default`.
pub(crate) async fn service_account(cluster: &mut Cluster) -> Result<(), Error> {
    let client = cluster.client();
    let path = "/api/v1/namespaces/default/serviceaccounts/default";
    answers(cluster, Component::ControllerManager, &client, path).await
}

pub(crate) async fn healthy(cluster: &mut Cluster, component: Component, port: u16) -> Result<(), Error> {
    let server = format!("https://{}", SocketAddr::new(cluster.address, port));
    let client = client::with_user(&server, &cluster.authority, AuthInfo::default())?;
    answers(cluster, component, &client, "/healthz").await
}

pub(crate) async fn answers(
    cluster: &mut Cluster,
    component: Component,
    client: &Client,
    path: &str,
) -> Result<(), Error> {
    until(cluster, component.name(), || get(client, path)).await
}

pub(crate) async fn until<F>(
    cluster: &mut Cluster,
    component: &'static str,
    mut check: impl FnMut() -> F,
) -> Result<(), Error>
where
    F: Future<Output = Result<(), String>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some((process, status)) = cluster.processes.ended() {
            let (component, log) = (process.name, &process.log);
            whatever!(
                "failed to keep {component} running: it ended ({status}); the end of {}:\n{}",
                log.display(),
                tail(log)
            );
        }
        let last = match check().await {
            Ok(()) => return Ok(()),
            Err(problem) => problem,
        };
        if Instant::now() >= deadline {
            let (seconds, log) = (PATIENCE.as_secs(), cluster.folder.log(component));
            whatever!(
                "failed to see {component} ready within {seconds} s (last: {last}); the end of {}:\n{}",
                log.display(),
                tail(&log)
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn get(client: &Client, path: &str) -> Result<(), String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    match tokio::time::timeout(ANSWER_WITHIN, client.request_text(request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => {
            let causes =
                std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
            let causes = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
            Err(format!("GET {path}: {causes}"))
        }
        Err(_) => Err(format!("GET {path}: no response within {} s", ANSWER_WITHIN.as_secs())),
    }
}
