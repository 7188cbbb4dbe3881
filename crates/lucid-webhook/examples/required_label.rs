//! A validating webhook that admits only pods with the label `example-validation: "true"`.

use std::env;
use std::net::SocketAddr;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use lucid_certs::source::Files;
use lucid_certs::{Certificates, ServerTls, ServingNames};
use lucid_webhook::{AdmissionResponse, BoxError, Object, Router, Server, Webhook};
use tokio::signal::unix::{SignalKind, signal};

async fn required_label(Object(pod): Object<Pod>) -> AdmissionResponse {
    match pod.metadata.labels.unwrap_or_default().get("example-validation").map(String::as_str) {
        Some("true") => AdmissionResponse::allow(),
        _ => AdmissionResponse::deny(403, "Forbidden", "Pod must have label 'example-validation=true'"),
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [listen, certificate, key, host @ ..] = arguments.as_slice() else {
        return Err("usage: required_label <listen> <cert.pem> <key.pem> [<host>]".into());
    };
    let listen: SocketAddr = listen.parse()?;
    // Host in the URL that the API server calls, for which the certificate has to be valid.
    let host = host.first().cloned().unwrap_or_else(|| listen.ip().to_string());
    let certificates = Certificates::new(ServingNames::for_hosts(&[&host])?);
    let tls = ServerTls::new(certificates.resolver()).build()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
    .shared();
    let mut ready = certificates.ready();
    tokio::spawn(certificates.run(Files::new(certificate, key), shutdown.clone()));
    // While the files are invalid, the log states the reason.
    ready.wait_for(|ready| *ready).await?;
    let router =
        Router::new().webhook("/validate", Webhook::validating("required-label.example.com", required_label));
    let server = Server::bind(listen).await?;
    println!("listening on {}", server.local_addr());
    server.serve(tls, router, shutdown).await;
    Ok(())
}
