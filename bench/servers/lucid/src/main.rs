//! lucid-webhook, as its documentation shows it: one handler that reads a view, one that decodes the whole pod.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bench_server::Arguments;
use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::{
    AdminServer, AdmissionRequest, AdmissionResponse, Metrics, RawObject, Readiness, Router, Server,
};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};
use tower::service_fn;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
    /// Address of /readyz and /metrics.
    #[arg(long, default_value = "127.0.0.1:0")]
    admin: SocketAddr,
}

#[derive(Deserialize)]
struct View<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

fn answer(label: Option<&str>) -> AdmissionResponse {
    match label {
        Some("true") => AdmissionResponse::allow(),
        _ => AdmissionResponse::deny(403, "Forbidden", "label example-validation is not true"),
    }
}

fn view(object: &RawObject) -> Result<AdmissionResponse, serde_json::Error> {
    let pod: View<'_> = object.view()?;
    Ok(answer(pod.metadata.labels.get("example-validation").map(AsRef::as_ref)))
}

fn typed(object: &RawObject) -> Result<AdmissionResponse, serde_json::Error> {
    let pod: Pod = object.decode()?;
    let labels = pod.metadata.labels.as_ref();
    Ok(answer(labels.and_then(|labels| labels.get("example-validation")).map(String::as_str)))
}

async fn handle(
    request: AdmissionRequest,
    hold: Duration,
    read: fn(&RawObject) -> Result<AdmissionResponse, serde_json::Error>,
) -> Result<AdmissionResponse, serde_json::Error> {
    let Some(object) = &request.object else { return Ok(AdmissionResponse::allow()) };
    let response = read(object);
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    response
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Program { arguments, admin } = Program::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let hold = arguments.hold;
    let mut registry = Registry::default();
    let router = Router::new()
        .validate("/view", service_fn(move |request| handle(request, hold, view)))
        .validate("/typed", service_fn(move |request| handle(request, hold, typed)))
        .with_metrics(Metrics::new(&mut registry));

    let readiness = Readiness::default();
    let serving = readiness.condition("serving");
    let admin = AdminServer::bind(admin).await?;
    println!("ready at {}", admin.local_addr());
    let server = Server::bind(arguments.listen).await?;
    bench_server::announce(server.local_addr());
    serving.set(true);
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = async move {
        terminate.recv().await;
        serving.set(false);
    };
    tokio::select! {
        never = admin.serve(readiness, registry) => match never {},
        () = server.serve(arguments.tls()?, router, shutdown) => Ok(()),
    }
}
