//! A mutating webhook that adds the label `example-mutated: "true"` to every pod.

use std::env;
use std::net::SocketAddr;

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use lucid_certs::source::Files;
use lucid_certs::{Certificates, ServerTls, ServingNames};
use lucid_webhook::{BoxError, Changed, Object, Operation, Router, Server, Webhook};
use tokio::signal::unix::{SignalKind, signal};

async fn add_label(Object(mut pod): Object<Pod>) -> Changed<Pod> {
    pod.metadata.labels.get_or_insert_default().insert("example-mutated".into(), "true".into());
    Changed::new(pod)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [listen, certificate, key, host @ ..] = arguments.as_slice() else {
        return Err("usage: add_label <listen> <cert.pem> <key.pem> [<host>]".into());
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
    let webhook = Webhook::defaulting::<Pod>("add-label.example.com", [Operation::Create], add_label);
    let router = Router::new().webhook("/mutate", webhook);
    let server = Server::bind(listen).await?;
    println!("listening on {}", server.local_addr());
    server.serve(tls, router, shutdown).await;
    Ok(())
}
