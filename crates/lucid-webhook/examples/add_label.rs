//! A mutating webhook: every pod gets the label `example-mutated: "true"`.

use std::env;

use k8s_openapi::api::core::v1::Pod;
use lucid_webhook::{BoxError, Changed, Object, PemFiles, Router, Server, Webhook};
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
    let tls = PemFiles::load(certificate, key).await?;
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
