//! An admission webhook without a framework for it: axum, and the AdmissionReview of kube.

use std::error::Error;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use axum::{Json, Router};
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use bench_common::Arguments;
use clap::Parser;
use kube_core::DynamicObject;
use kube_core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

async fn validate(
    State(hold): State<Duration>,
    Json(review): Json<AdmissionReview<DynamicObject>>,
) -> Json<AdmissionReview<DynamicObject>> {
    let request: AdmissionRequest<DynamicObject> = match review.try_into() {
        Ok(request) => request,
        Err(error) => return Json(AdmissionResponse::invalid(format!("{error}")).into_review()),
    };
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    let response = AdmissionResponse::from(&request);
    let labels = request.object.as_ref().and_then(|object| object.metadata.labels.as_ref());
    let label = labels.and_then(|labels| labels.get("example-validation"));
    Json(match label.map(String::as_str) {
        Some("true") => response.into_review(),
        _ => response.deny("label example-validation is not true").into_review(),
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let Program { arguments } = Program::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let router = Router::new()
        .route("/validate", post(validate))
        .layer(DefaultBodyLimit::max(7 * 1024 * 1024))
        .with_state(arguments.hold);
    let listener = std::net::TcpListener::bind(arguments.listen)?;
    listener.set_nonblocking(true)?;
    bench_common::announce(listener.local_addr()?);
    let tls = RustlsAcceptor::new(RustlsConfig::from_config(arguments.tls()?)).acceptor(NoDelayAcceptor);
    axum_server::from_tcp(listener)?.acceptor(tls).serve(router.into_make_service()).await?;
    Ok(())
}
