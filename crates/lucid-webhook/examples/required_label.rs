//! A validating webhook: only pods with the label `example-validation: "true"` pass.

use std::env;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::{AdmissionResponse, BoxError, Object, Router, Server, Webhook};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
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
    let tls = tls(certificate, key)?;
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

/// What the API server connects to, made of two PEM files.
fn tls(certificate: &str, key: &str) -> Result<ServerConfig, BoxError> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    Ok(tls)
}
