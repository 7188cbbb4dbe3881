//! lucid-webhook, as its documentation shows it: one handler that reads a view, one that decodes the whole pod. Or its server
//! alone, with a constant response.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::Duration;

use bench_common::Arguments;
use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::{
    AdminServer, AdmissionResponse, DecodeError, Object, RawObject, Readiness, RequestBody, Router, Server,
    State, Webhook, WithState,
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
    /// Send the same response to each request.
    #[arg(long)]
    constant: bool,
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
    let pod: View<'_> = object.decode()?;
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

async fn constant(request: Request<RequestBody>) -> Result<Response<Full<Bytes>>, Infallible> {
    // A broken body ends the connection.
    let _body = request.into_body().collect().await;
    let mut response = Response::new(Full::new(Bytes::from_static(bench_common::ANSWER.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Program { arguments, admin, constant: is_constant } = Program::parse();
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
    let tls = arguments.tls()?;
    let serve = async move {
        match is_constant {
            true => server.serve(tls, service_fn(constant), shutdown).await,
            false => server.serve(tls, router, shutdown).await,
        }
    };
    tokio::select! {
        never = admin.serve(readiness, registry) => match never {},
        () = serve => Ok(()),
    }
}
