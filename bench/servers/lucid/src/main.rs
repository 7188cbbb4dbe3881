//! lucid-webhook, as its documentation shows it: one handler that reads a view, one that decodes the whole pod.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use bench_common::Arguments;
use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::{
    AdminServer, AdmissionResponse, DecodeError, Object, RawObject, Readiness, Router, Server, State,
    Webhook, WithState,
};
use prometheus_client::registry::Registry;
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};

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

async fn view(object: RawObject, State(hold): State<Duration>) -> Result<AdmissionResponse, DecodeError> {
    let pod: View<'_> = object.view()?;
    let response = answer(pod.metadata.labels.get("example-validation").map(AsRef::as_ref));
    wait(hold).await;
    Ok(response)
}

async fn typed(Object(pod): Object<Pod>, State(hold): State<Duration>) -> AdmissionResponse {
    let labels = pod.metadata.labels.as_ref();
    let response = answer(labels.and_then(|labels| labels.get("example-validation")).map(String::as_str));
    wait(hold).await;
    response
}

async fn wait(hold: Duration) {
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Program { arguments, admin } = Program::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal()).init();
    let hold = arguments.hold;
    let mut registry = Registry::default();
    let router = Router::new()
        .webhook("/view", Webhook::validating("view.example.com", view.with_state(hold)))
        .webhook("/typed", Webhook::validating("typed.example.com", typed.with_state(hold)))
        .with_metrics(&mut registry);

    let readiness = Readiness::default();
    let serving = readiness.condition("serving");
    let admin = AdminServer::bind(admin).await?;
    println!("ready at {}", admin.local_addr());
    let server = Server::bind(arguments.listen).await?;
    bench_common::announce(server.local_addr());
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
