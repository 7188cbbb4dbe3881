//! A validating webhook: only pods with the label `example-validation: "true"` pass.

use std::env;

use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::{AdmissionResponse, BoxError, Object, PemFiles, Router, Server, Webhook};
use tokio::signal::unix::{SignalKind, signal};

async fn required_label(Object(pod): Object<Pod>) -> AdmissionResponse {
    match pod.metadata.labels.unwrap_or_default().get("example-validation").map(String::as_str) {
        Some("true") => AdmissionResponse::allow(),
        _ => AdmissionResponse::deny(403, "Forbidden", "label example-validation: \"true\" is missing"),
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [listen, certificate, key] = arguments.as_slice() else {
        return Err("usage: required_label <listen> <cert.pem> <key.pem>".into());
    };
    let tls = PemFiles::load(certificate, key).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    let router =
        Router::new().webhook("/validate", Webhook::validating("required-label.example.com", required_label));
    let server = Server::bind(listen.parse()?).await?;
    println!("listening on {}", server.local_addr());
    server.serve(tls, router, shutdown).await;
    Ok(())
}
