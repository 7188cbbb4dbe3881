//! tonic with certificates from files.
//!
//! `cargo run -p lucid-certs --features files --example tonic 127.0.0.1:8443 FOLDER`

use std::{future::pending, sync::Arc, time::Duration};

use futures::StreamExt;
use lucid_certs::{Certificates, ServerTls, ServingNames, source::FileSource};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tonic::transport::{Server, server::TcpIncoming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("expected IP:PORT")?;
    let folder = arguments.next().ok_or("expected a folder with tls.crt and tls.key")?;

    let certificates = Certificates::new(ServingNames::for_hosts(&["localhost"])?);
    let tls = TlsAcceptor::from(Arc::new(ServerTls::new(certificates.resolver()).with_alpn(["h2"]).build()?));
    let first_certificate = certificates.first_certificate();
    tokio::spawn(certificates.run(FileSource::in_directory(folder), pending()));
    first_certificate.await;

    let listener = TcpIncoming::bind(address.parse()?)?;
    println!("listening on {}", listener.local_addr()?);
    // Handshakes run side by side, so that a client that sends nothing holds up no other.
    let connections = listener.map(|connection| {
        let tls = tls.clone();
        async move { timeout(Duration::from_secs(10), tls.accept(connection?)).await? }
    });
    let (_, health) = tonic_health::server::health_reporter();
    Server::builder().add_service(health).serve_with_incoming(connections.buffer_unordered(100)).await?;
    Ok(())
}
