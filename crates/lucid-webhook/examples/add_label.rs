//! A mutating webhook: every pod gets the label `example-mutated: "true"`.

use std::env;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::{BoxError, Changed, Object, Router, Server, Webhook};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::signal::unix::{SignalKind, signal};

async fn add_label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
    pod.metadata.labels.get_or_insert_default().insert("example-mutated".into(), "true".into());
    Changed(pod)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [listen, certificate, key] = arguments.as_slice() else {
        return Err("usage: add_label <listen> <cert.pem> <key.pem>".into());
    };
    let tls = tls(certificate, key)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    let router = Router::new().webhook("/mutate", Webhook::mutating("add-label.example.com", add_label));
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
